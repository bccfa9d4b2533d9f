package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.aliquot.api.Annotations;
import io.aliquot.api.Labels;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Measures what {@code ./aliquot figures} publishes; no part of {@code verify}. Appends lines of {@code name|number} to
 * {@code target/figures.txt}.
 */
@ExtendWith(LabExtension.class)
class Figures {
    private static final int PODS = 50;
    private static final int NODES = 100;

    @Test
    void fiftyPodsOneAfterAnother(Lab lab, TestNamespace space) throws IOException {
        space.run(Pods.memory(lab, "warm-up", 1000));
        space.delete("warm-up");
        AuditLog log = AuditLog.fromNowOn(lab);
        var milliseconds = new long[PODS];
        for (int i = 0; i < PODS; i++) {
            String name = "pod-" + i;
            long begin = System.nanoTime();
            space.create(Pods.memory(lab, name, 1000));
            space.awaitRunning(name, TestNamespace.EVENTUALLY);
            milliseconds[i] = (System.nanoTime() - begin) / 1_000_000;
            space.delete(name);
        }
        Arrays.sort(milliseconds);
        tell("50 pods one after another: creation to running container, p50", milliseconds[PODS / 2] + " ms");
        tell("50 pods one after another: creation to running container, maximum", milliseconds[PODS - 1] + " ms");
        tell(
                "API writes of all of Aliquot's identities for these 50 pods, events aside",
                Integer.toString(log.ours().size()));
    }

    @Test
    void memoryOfTheProgramsWithAHundredNodes(Lab lab) throws IOException, InterruptedException {
        var hollow = new ArrayList<String>();
        try {
            for (int i = lab.nodes().size(); i < NODES; i++) {
                String name = "hollow-" + i;
                hollow.add(name);
                lab.client()
                        .resource(new NodeBuilder()
                                .withNewMetadata()
                                .withName(name)
                                .addToLabels(Labels.GPU, Labels.GPU_ON)
                                .endMetadata()
                                .build())
                        .create();
                try (KubernetesClient agent = lab.as(
                        "system:serviceaccount:" + Lab.NAMESPACE + ":aliquot-device-plugin",
                        Map.of("authentication.kubernetes.io%2Fnode-name", List.of(name)))) {
                    agent.nodes()
                            .withName(name)
                            .patch(
                                    PatchContext.of(PatchType.JSON_MERGE),
                                    "{\"metadata\":{\"annotations\":{\"" + Annotations.GPUS + "\":"
                                            + new ObjectMapper().writeValueAsString(inventory(lab)) + "}}}");
                }
            }
            Thread.sleep(20_000); // its caches fill
            tell("RSS of the scheduler's program with 100 nodes", rss(lab, "scheduler", "extender") + " MB");
            tell("RSS of the device plugin", rss(lab, "device-plugin", "device-plugin") + " MB");
        } finally {
            hollow.forEach(name -> lab.client().nodes().withName(name).delete());
        }
    }

    /** A real node's inventory under other UUIDs, with eight GPUs. */
    private static String inventory(Lab lab) {
        var real = Allocations.inventory(lab, lab.nodes().get(0));
        var text = new StringBuilder();
        for (int i = 0; i < 8; i++) {
            var gpu = real.gpus().get(0);
            text.append(text.isEmpty() ? "" : ",")
                    .append("{\"uuid\":\"GPU-%s\",\"index\":%d,\"model\":\"%s\",\"memoryMiB\":%d,\"contextMiB\":0,"
                            .formatted(UUID.randomUUID(), i, gpu.model(), gpu.memoryMiB()))
                    .append("\"numa\":0,\"healthy\":true,\"mode\":\"shim\",\"links\":{}}");
        }
        return "{\"version\":1,\"visibleDevices\":\"{uuid}\",\"memoryScaling\":1.0,\"coreScaling\":1.0,\"slots\":10,"
                + "\"gpus\":[" + text + "]}";
    }

    /** Of the processes of a container: the resident memory, in MB. */
    private static long rss(Lab lab, String component, String container) {
        Pod pod = lab
                .client()
                .pods()
                .inNamespace(Lab.NAMESPACE)
                .withLabel("app.kubernetes.io/component", component)
                .list()
                .getItems()
                .stream()
                .filter(TestNamespace::runs) // hollow nodes get an agent's pod too, which nobody starts
                .findFirst()
                .orElseThrow();
        String id = pod.getStatus().getContainerStatuses().stream()
                .filter(status -> status.getName().equals(container))
                .findFirst()
                .orElseThrow()
                .getContainerID()
                .replaceFirst("^containerd://", "");
        String node = pod.getSpec().getNodeName();
        String kilobytes = lab.onNode(
                        node,
                        "bash",
                        "-c",
                        "pid=$(ctr -n k8s.io tasks ls | awk -v id=" + id + " '$1 == id { print $2 }'); "
                                + "awk '/^VmRSS/ { print $2 }' /proc/$pid/status")
                .expectSuccess()
                .trim();
        assertThat(kilobytes).matches("[0-9]+");
        return Math.round(Long.parseLong(kilobytes) * 1024 / 1e6);
    }

    private static void tell(String name, String number) throws IOException {
        Path file = Path.of("target", "figures.txt").toAbsolutePath();
        Files.writeString(file, name + "|" + number + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }
}
