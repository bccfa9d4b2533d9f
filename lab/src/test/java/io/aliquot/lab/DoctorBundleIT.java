package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.ContainerBuilder;
import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.SecretBuilder;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.function.UnaryOperator;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;

/** That the doctor's archive explains an installation, and contains none of the secrets that are planted in the cluster. */
@ExtendWith(LabExtension.class)
@LongTier.Only
@Isolated
class DoctorBundleIT {
    private static final String PLANTED = "pl4nted-s3cret";
    private static final String SECRET = "doctor-bundle-it";
    private static final Duration COMMANDS = Duration.ofMinutes(5);

    @TempDir
    @SuppressWarnings("NullAway.Init")
    Path folder;

    @AfterEach
    void deleteWhatIsNotInTheTestsNamespace(Lab lab) {
        lab.client().secrets().inNamespace(Lab.NAMESPACE).withName(SECRET).delete();
        lab.kubectl("-n", Lab.NAMESPACE, "delete", "job/bundle", "--ignore-not-found");
        lab.kubectl("-n", Lab.NAMESPACE, "annotate", "deployment/aliquot-scheduler", "note-");
    }

    @Test
    void theArchiveOfAnAdministratorHasNoneOfThem(Lab lab, TestNamespace namespace) throws Exception {
        plant(lab, namespace);
        Path archive = folder.resolve("aliquot.tar.gz");

        Lab.Output output = lab.aliquot("doctor", "--no-probe", "--bundle", archive.toString());

        assertThat(output.exit()).as("%s", output).isZero();
        assertExplains(lab, namespace, extract(archive));
    }

    /** As docs/troubleshooting.md says. */
    @Test
    void theArchiveOfTheChartsJobHasNoneOfThem(Lab lab, TestNamespace namespace) throws Exception {
        plant(lab, namespace);

        List<String> commands = Pattern.compile("(?m)^    (kubectl -n aliquot .*\\bbundle\\b.*)$")
                .matcher(Files.readString(lab.root().resolve("docs/troubleshooting.md")))
                .results()
                .map((MatchResult line) -> lab.root().resolve("aliquot") + " " + line.group(1))
                .toList();
        assertThat(commands).hasSize(4);
        Lab.execute(COMMANDS, List.of("bash", "-ec", "cd " + folder + "\n" + String.join("\n", commands)))
                .expectSuccess();

        assertExplains(lab, namespace, extract(folder.resolve("aliquot.tar.gz")));
    }

    private static void plant(Lab lab, TestNamespace namespace) {
        for (String where : List.of(Lab.NAMESPACE, namespace.name())) {
            lab.client()
                    .resource(new SecretBuilder()
                            .withNewMetadata()
                            .withName(SECRET)
                            .withNamespace(where)
                            .endMetadata()
                            .addToStringData("key", PLANTED)
                            .build())
                    .create();
        }
        lab.kubectl("-n", Lab.NAMESPACE, "annotate", "deployment/aliquot-scheduler", "--overwrite", "note=" + PLANTED)
                .expectSuccess();
        namespace.create(container(
                Pods.withoutGpu(lab, "stranger"),
                container -> container
                        .addToCommand(PLANTED)
                        .addNewEnv()
                        .withName("TOKEN")
                        .withValue(PLANTED)
                        .endEnv()));
        Pod crashing = container(
                Pods.withGpuMemory(lab, "crashing", 100),
                container -> container
                        .withCommand("sh", "-c", "echo $KEY; echo $KEY > /dev/termination-log; exit 3", PLANTED)
                        .addNewEnv()
                        .withName("KEY")
                        .withNewValueFrom()
                        .withNewSecretKeyRef("key", SECRET, false)
                        .endValueFrom()
                        .endEnv());
        namespace.create(Pods.withAnnotations(crashing, Map.of("example.com/note", PLANTED)));
        namespace.create(container(
                Pods.withGpuMemory(lab, "missing", 100), container -> container.withCommand("tool --key " + PLANTED)));

        namespace.await(
                "crashing",
                "has printed the secret",
                EVENTUALLY,
                pod -> pod.getStatus().toString().contains(PLANTED));
        awaitTrue(
                "an event that quotes the command",
                EVENTUALLY,
                () -> namespace.events("missing").stream()
                        .map(Event::getMessage)
                        .anyMatch(message -> String.valueOf(message).contains(PLANTED)));
    }

    private static Pod container(Pod pod, UnaryOperator<ContainerBuilder> change) {
        return pod.edit()
                .editSpec()
                .withContainers(change.apply(new ContainerBuilder(
                                pod.getSpec().getContainers().getFirst()))
                        .build())
                .endSpec()
                .build();
    }

    private static void assertExplains(Lab lab, TestNamespace namespace, Map<String, String> files) {
        assertThat(files)
                .allSatisfy((name, content) -> assertThat(content).as(name).doesNotContain(PLANTED, "PRIVATE KEY"));
        assertThat(files.get("errors.txt")).as("what is missing").isBlank();
        assertThat(files).containsKeys("findings.txt", "findings.json", "versions.json", "config/apiservice.json");
        assertThat(files.get("config/validatingadmissionpolicies.json")).contains("\"aliquot-fence\"");
        assertThat(files.get("config/configmap-aliquot-kube-scheduler.json")).contains("extenders");
        assertThat(files.get("config/deployments.json")).contains("ALIQUOT_NODE_LABEL", "gpu=on");
        assertThat(Objects.requireNonNull(files.get("shares.jsonl"))
                        .lines()
                        .filter(line -> line.contains(namespace.name())))
                .hasSize(2)
                .allMatch(line -> line.contains("aliquot.io/vgpu.main"))
                .allMatch(line -> line.contains("\"" + Resources.MEMORY + "\":\"100\""));
        assertThat(files.get("events.jsonl"))
                .contains("\"namespace\":\"" + namespace.name() + "\",\"name\":\"crashing\"")
                .contains("\"reason\":\"Failed\"");
        for (String node : lab.nodes()) {
            assertThat(files.get("nodes.jsonl")).contains("\"name\":\"" + node + "\"", "aliquot.io/gpus");
            String agent = lab.agentOf(node).getMetadata().getName();
            assertThat(files.get("logs/" + agent + "/device-plugin.log")).isNotBlank();
            assertThat(files.get("metrics/" + agent + ".txt")).contains("aliquot_");
        }
        for (Pod scheduler : lab.componentPods("scheduler")) {
            String name = scheduler.getMetadata().getName();
            assertThat(files.get("logs/" + name + "/extender.log")).isNotBlank();
            assertThat(files.get("logs/" + name + "/kube-scheduler.log")).isNotBlank();
            assertThat(files.get("metrics/" + name + ".txt")).contains("aliquot_");
            assertThat(files.get("pods.jsonl")).contains(name);
        }
        for (Pod api : lab.componentPods("api")) {
            assertThat(files).containsKey("logs/" + api.getMetadata().getName() + "/api-proxy.log");
        }
    }

    private Map<String, String> extract(Path archive) throws IOException {
        Lab.execute(COMMANDS, List.of("tar", "-xzf", archive.toString(), "-C", folder.toString()))
                .expectSuccess();
        Path root = folder.resolve("aliquot-bundle");
        try (Stream<Path> all = Files.walk(root)) {
            return all.filter(Files::isRegularFile)
                    .collect(Collectors.toMap(
                            one -> root.relativize(one).toString(), DoctorBundleIT::read, (a, b) -> a, TreeMap::new));
        }
    }

    private static String read(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
