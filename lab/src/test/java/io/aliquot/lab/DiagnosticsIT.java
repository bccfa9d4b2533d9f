package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.PROMPTLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Pod;
import java.io.IOException;
import java.nio.file.Files;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/** What the docs offer to find out what is wrong with an installation. */
@ExtendWith(LabExtension.class)
@Isolated
class DiagnosticsIT {
    private static final String TEST_POD = "aliquot-test";

    @Test
    void helmTestSucceedsAndLeavesNoPod(Lab lab) {
        String output = lab.aliquot("helm", "test", "aliquot", "--namespace", Lab.NAMESPACE, "--timeout", "60s")
                .expectSuccess();

        assertThat(output).contains(TEST_POD).contains("Phase:          Succeeded");
        assertThat(lab.client().pods().inNamespace("default").withName(TEST_POD).get())
                .isNull();
    }

    @Test
    void theProbeOfHelmTestNamesWhatIsMissing(Lab lab, TestNamespace namespace) throws IOException {
        String probe = Files.readString(lab.root().resolve("charts/aliquot/probe.sh"));
        namespace.create(Pods.withoutGpu(lab, "no-share"));
        namespace.create(Pods.withGpuMemory(lab, "share", 1000));

        assertThat(probe(namespace, "no-share", probe))
                .isEqualTo(
                        "FAILED: /etc/aliquot/vgpu is missing or empty: the kubelet has not mounted the pod's limits,"
                                + " which the scheduler writes when it binds the pod");
        assertThat(probe(namespace, "share", probe))
                .startsWith("FAILED: /etc/aliquot/vgpu says \"GPU-")
                .endsWith("\" instead of memory=64Mi");
        String otherSize = probe.replace("=64Mi", "=1000Mi");
        assertThat(probe(namespace, "share", otherSize))
                .isEqualTo("FAILED: nvidia-smi shows \"1000 MiB\" instead of one GPU with 64 MiB");
        assertThat(probe(
                        namespace,
                        "share",
                        otherSize.replace("libcuda.so", "absent.so").replace("libnvidia-ml.so", "absent.so")))
                .startsWith("FAILED: no library of NVIDIA's driver is mounted");
    }

    private static String probe(TestNamespace namespace, String pod, String probe) {
        namespace.awaitRunning(pod, PROMPTLY);
        Lab.Output output = namespace.exec(pod, "sh", "-c", probe);
        assertThat(output.exit()).as("%s", output).isEqualTo(1);
        return output.out().strip();
    }

    /** As docs/troubleshooting.md says. */
    @Test
    void aThreadDumpOfEachProgramIsInItsLog(Lab lab) throws IOException {
        String command = documented(lab, "sh -c '(.*/opt/java/bin/java.*)'");
        for (String component : List.of("scheduler", "api", "device-plugin")) {
            Pod pod = lab.componentPods(component).get(0);
            String name = pod.getMetadata().getName();
            String before = Instant.now().toString();

            lab.kubectl("exec", "--namespace", Lab.NAMESPACE, name, "--", "sh", "-c", command)
                    .expectSuccess();

            awaitTrue(
                    "a thread dump of " + name,
                    PROMPTLY,
                    () -> lab.kubectl("logs", "--namespace", Lab.NAMESPACE, name, "--since-time", before)
                            .expectSuccess()
                            .contains("Full thread dump OpenJDK"));
            assertThat(restarts(lab.client().pods().resource(pod).get())).isEqualTo(restarts(pod));
        }
    }

    private static int restarts(Pod pod) {
        return pod.getStatus().getContainerStatuses().stream()
                .mapToInt(status -> status.getRestartCount())
                .sum();
    }

    /** The only text in the document that the pattern's group matches. */
    private static String documented(Lab lab, String pattern) throws IOException {
        Matcher matcher =
                Pattern.compile(pattern).matcher(Files.readString(lab.root().resolve("docs/troubleshooting.md")));
        assertThat(matcher.find()).as(pattern).isTrue();
        return matcher.group(1);
    }

    @Test
    @LongTier.Only
    void theLogLevelsChangeWhileTheProgramsRun(Lab lab, TestNamespace namespace) {
        String before = Instant.now().toString();
        setLevels(lab, "debug");
        try {
            for (String component : List.of("scheduler", "device-plugin")) {
                awaitTrue(
                        "the level of every " + component,
                        PROMPTLY.plus(Duration.ofSeconds(10)),
                        () -> lab.componentPods(component).stream()
                                .allMatch(pod -> log(lab, pod, before).contains("log level debug")));
            }
            Pod pod = namespace.run(Pods.withGpuMemory(lab, "decided", 1000));

            String node = pod.getSpec().getNodeName();
            String scheduler = lab.componentPods("scheduler").stream()
                    .map(replica -> log(lab, replica, before))
                    .reduce("", String::concat);
            assertThat(scheduler)
                    .containsPattern("filter pod=" + namespace.name() + "/decided uid=\\S+ nodes=\\d+ fits=")
                    .containsPattern(
                            "bind pod=" + namespace.name() + "/decided uid=\\S+ node=" + node + " outcome=bound");
            assertThat(log(lab, lab.agentOf(node), before))
                    .containsPattern("FINE Allocate: \\[\\[slot-")
                    .containsPattern("FINE pass: \\d+ GPUs, ");
        } finally {
            setLevels(lab, "info");
        }
    }

    /** The kubelet writes a ConfigMap into its mounts at the pod's next change, or up to a minute and a half later. */
    private static void setLevels(Lab lab, String level) {
        lab.client()
                .configMaps()
                .inNamespace(Lab.NAMESPACE)
                .withName("aliquot-logging")
                .edit(map -> {
                    map.setData(Map.of("scheduler", level, "device-plugin", level));
                    return map;
                });
        lab.kubectl("annotate", "pods", "--all", "--overwrite", "--namespace", Lab.NAMESPACE, "log-level=" + level)
                .expectSuccess();
    }

    private static String log(Lab lab, Pod pod, String since) {
        return lab.kubectl(
                        "logs", "--namespace", Lab.NAMESPACE, pod.getMetadata().getName(), "--since-time", since)
                .expectSuccess();
    }
}
