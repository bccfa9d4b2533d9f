package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.fabric8.kubernetes.api.model.Pod;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * A pod a second, each of 3 to 8 s, for 40 minutes or {@code ALIQUOT_CHURN_MINUTES}. Regression: after 15 minutes both node
 * agents ended by an OutOfMemoryError.
 */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class ShortPodsIT {
    private static final Duration LENGTH =
            Duration.ofMinutes(Long.parseLong(System.getenv().getOrDefault("ALIQUOT_CHURN_MINUTES", "40")));
    /** By when heaps have grown and code is compiled. */
    private static final Duration GROWTH = Duration.ofMinutes(10);

    private static final Duration SAMPLE = Duration.ofSeconds(15);
    private static final long MIB = 1L << 20;
    private static final long SEED = 49;
    private static final Pattern WORKING_SET =
            Pattern.compile("container_memory_working_set_bytes\\{container=\"(?<container>[^\"]+)\",namespace=\""
                    + Lab.NAMESPACE + "\",pod=\"(?<pod>[^\"]+)\"} (?<bytes>\\S+).*");

    @Test
    void programsKeepTheirMemoryAndNoPodIsRejected(Lab lab, TestNamespace namespace) {
        Map<String, List<Long>> memory = new TreeMap<>();
        var random = new Random(SEED);
        List<String> programs = programs(lab);
        long begin = System.nanoTime();
        long sampledAt = begin;
        int created = 0;
        while (System.nanoTime() - begin < LENGTH.toNanos()) {
            if (System.nanoTime() - begin >= Duration.ofSeconds(created).toNanos()) {
                namespace.create(shortPod(lab, "short-" + created, 3 + random.nextInt(6)));
                created++;
                deleteEnded(namespace);
            }
            if (System.nanoTime() - sampledAt >= SAMPLE.toNanos()) {
                sampledAt = System.nanoTime();
                lab.nodes().forEach(node -> sample(lab, node, memory));
            }
        }
        awaitTrue("all pods end", EVENTUALLY.multipliedBy(2), () -> deleteEnded(namespace) == 0);

        System.out.println(created + " pods; MiB at the beginning, at the end and at most");
        memory.forEach((program, bytes) -> System.out.printf(
                "%s: %d %d %d%n",
                program,
                bytes.getFirst() / MIB,
                bytes.getLast() / MIB,
                bytes.stream().mapToLong(one -> one / MIB).max().orElseThrow()));
        assertThat(programs(lab)).as("no restart").isEqualTo(programs);
        assertThat(memory).as("a row for each of %s", programs).hasSameSizeAs(programs);
        int from = (int) Math.min(GROWTH.dividedBy(SAMPLE), LENGTH.dividedBy(SAMPLE) / 4);
        memory.forEach((program, bytes) -> {
            List<Long> steady = bytes.subList(from, bytes.size());
            int third = steady.size() / 3;
            assertThat(median(steady.subList(2 * third, 3 * third)))
                    .as("memory of %s in the last third: %s", program, bytes)
                    .isLessThan(median(steady.subList(third, 2 * third)) * 105 / 100 + 8 * MIB);
        });
    }

    private static Pod shortPod(Lab lab, String name, int seconds) {
        Pod pod = Pods.withAnnotations(
                        Pods.withGpuMemory(lab, name, 1000), Map.of(Annotations.NODE_PLACEMENT, "spread"))
                .edit()
                .editSpec()
                .withRestartPolicy("Never")
                .endSpec()
                .build();
        pod.getSpec()
                .getContainers()
                .getFirst()
                .setCommand(List.of("bash", "-c", "timeout " + seconds + " vgpu-sample alloc 100 hold; true"));
        return pod;
    }

    /** Returns how many pods there are then. A pod that its kubelet rejects has failed. */
    private static int deleteEnded(TestNamespace namespace) {
        List<Pod> pods =
                namespace.client().pods().inNamespace(namespace.name()).list().getItems();
        for (Pod pod : pods) {
            assertThat(pod.getStatus().getPhase())
                    .as(() -> pod.getMetadata().getName() + ": " + pod.getStatus())
                    .isNotEqualTo("Failed");
            if (pod.getStatus().getPhase().equals("Succeeded")
                    && pod.getMetadata().getDeletionTimestamp() == null) {
                namespace.requestDeletion(pod);
            }
        }
        return pods.size();
    }

    /** Each container of the installation, with its restarts. */
    private static List<String> programs(Lab lab) {
        return Stream.of("scheduler", "device-plugin", "api")
                .flatMap(component -> lab.componentPods(component).stream())
                .flatMap(pod -> pod.getStatus().getContainerStatuses().stream()
                        .map(status -> pod.getMetadata().getName() + "/" + status.getName() + " "
                                + status.getRestartCount() + " " + status.getContainerID()))
                .collect(Collectors.toCollection(TreeSet::new))
                .stream()
                .toList();
    }

    /** What counts against the memory limit of each container of the installation: the kubelet's working set. */
    private static void sample(Lab lab, String node, Map<String, List<Long>> memory) {
        lab.kubectl("get", "--raw", "/api/v1/nodes/" + node + "/proxy/metrics/resource")
                .expectSuccess()
                .lines()
                .map(WORKING_SET::matcher)
                .filter(Matcher::matches)
                .forEach(line -> memory.computeIfAbsent(
                                line.group("container") + " of " + line.group("pod"), any -> new ArrayList<>())
                        .add((long) Double.parseDouble(line.group("bytes"))));
    }

    private static long median(List<Long> values) {
        long[] sorted = values.stream().mapToLong(value -> value).sorted().toArray();
        return sorted[sorted.length / 2];
    }
}
