package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

/** {@code simulate --live}, run with an account that may list nodes and pods and nothing else. */
@ExtendWith(LabExtension.class)
@Isolated
class LiveSimulationIT {
    private static final int PODS = 5;

    private static final JsonMapper JSON = new JsonMapper();

    @TempDir
    @SuppressWarnings("NullAway.Init")
    private Path folder;

    @Test
    @LongTier.Only
    void theLiveClusterAndItsDumpGiveTheSameReport(Lab lab, TestNamespace namespace) throws IOException {
        for (int i = 0; i < PODS; i++) {
            namespace.create(Pods.withLimits(lab, "pod-" + i, Map.of(Resources.MEMORY, "9000", Resources.CORES, "20")));
            namespace.await("pod-" + i, "is bound", EVENTUALLY, TestNamespace::isBound);
        }
        Path dump = folder.resolve("dump.json");
        Files.writeString(
                dump, lab.kubectl("get", "nodes,pods", "-A", "-o", "json").expectSuccess());

        String role = namespace.name() + "-reader";
        JsonNode live;
        try {
            live = simulate(
                    lab, "--live", "--kubeconfig", reader(lab, namespace, role).toString());
        } finally {
            lab.kubectl("delete", "clusterrole,clusterrolebinding", role);
        }

        assertThat(live).isEqualTo(simulate(lab, "--dump", dump.toString()));
        assertThat(live.at("/nodes"))
                .extracting(node -> node.get("name").asString(""))
                .containsExactlyInAnyOrderElementsOf(lab.nodes());
        assertThat(live.at("/results/0/pods").asInt(0)).isGreaterThanOrEqualTo(PODS);
    }

    /** Creates an account in the namespace and a ClusterRole {@code role} for it; returns the account's kubeconfig. */
    private Path reader(Lab lab, TestNamespace namespace, String role) throws IOException {
        String[] inNamespace = {"--namespace", namespace.name()};
        lab.kubectl("create", "serviceaccount", "reader", inNamespace[0], inNamespace[1])
                .expectSuccess();
        lab.kubectl("create", "clusterrole", role, "--verb=list", "--resource=nodes,pods")
                .expectSuccess();
        lab.kubectl(
                        "create",
                        "clusterrolebinding",
                        role,
                        "--clusterrole=" + role,
                        "--serviceaccount=" + namespace.name() + ":reader")
                .expectSuccess();
        JsonNode config = JSON.readTree(
                lab.kubectl("config", "view", "--raw", "-o", "json").expectSuccess());
        String token = namespace.token("reader");
        for (JsonNode user : config.get("users")) {
            ((ObjectNode) user).putObject("user").put("token", token);
        }
        Path file = folder.resolve("reader.kubeconfig");
        JSON.writeValue(file.toFile(), config);
        return file;
    }

    /** The report, without its source and its times. */
    private JsonNode simulate(Lab lab, String... source) throws IOException {
        JsonNode report = SimulateCommand.run(lab, folder, source);
        ((ObjectNode) report).remove("program");
        ((ObjectNode) report.get("input")).remove("source");
        for (JsonNode timed : report.findParents("seconds")) {
            ((ObjectNode) timed).remove(List.of("seconds", "decisionMillis"));
        }
        return report;
    }
}
