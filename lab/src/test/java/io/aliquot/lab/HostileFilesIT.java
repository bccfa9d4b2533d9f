package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.Pod;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Containers that attack the agent by the files that it shares with them. Takes two minutes. */
@ExtendWith(LabExtension.class)
@LongTier.Only
class HostileFilesIT {
    private static final int HOSTILE = 4;

    /** Longer than a lease delays an ordinary open. */
    private static final Duration ATTACK = Duration.ofSeconds(60);

    private static final String MEMORY = "aliquot_container_memory_used_bytes";

    @Test
    void leasesTakeNoFiguresFromANeighborAlsoWhenTheAgentRestartsMeanwhile(Lab lab, TestNamespace namespace)
            throws Exception {
        Pod neighbor = namespace.run(Pods.withGpuMemory(lab, "neighbor", 3000));
        namespace
                .exec("neighbor", "bash", "-c", "nohup vgpu-sample alloc 2000 hold > /dev/null 2>&1 &")
                .expectSuccess();
        namespace.run(hostile(lab));
        awaitTrue("the neighbor's figures", EVENTUALLY, () -> hasFigures(lab, neighbor));
        assertFiguresFor(lab, neighbor, Duration.ofSeconds(10));
        namespace.exec("hostile", "test", "!", "-e", "/tmp/taken").expectSuccess(); // no lease while the agent runs

        String node = neighbor.getSpec().getNodeName();
        String killed = agentId(lab, node);
        lab.killContainer(node, killed);
        awaitTrue(
                "another agent with the neighbor's figures",
                EVENTUALLY,
                () -> !agentId(lab, node).equals(killed) && isAgentReady(lab, node) && hasFigures(lab, neighbor));
        assertFiguresFor(lab, neighbor, ATTACK);
        awaitTrue(
                "an event on the hostile pod",
                EVENTUALLY,
                () -> namespace.events("hostile").stream()
                        .anyMatch(event -> "GpuFileClosed".equals(event.getReason())));
        assertThat(namespace.events("neighbor")).noneMatch(event -> "GpuFileClosed".equals(event.getReason()));
    }

    private static void assertFiguresFor(Lab lab, Pod neighbor, Duration time) throws InterruptedException {
        String node = neighbor.getSpec().getNodeName();
        int restarts = agentRestarts(lab, node);
        for (long end = System.nanoTime() + time.toNanos(); System.nanoTime() < end; ) {
            assertThat(hasFigures(lab, neighbor)).isTrue();
            assertThat(isAgentReady(lab, node)).isTrue();
            TimeUnit.SECONDS.sleep(1);
        }
        assertThat(agentRestarts(lab, node)).as("by its liveness probe").isEqualTo(restarts);
    }

    private static boolean hasFigures(Lab lab, Pod pod) {
        return UsageIT.value(lab, pod, MEMORY, "kind=\"charged\"").orElse(0) >= 2000.0 * (1 << 20);
    }

    private static String agentId(Lab lab, String node) {
        return TestNamespace.containerStatus(lab.agentOf(node), "device-plugin").getContainerID();
    }

    private static boolean isAgentReady(Lab lab, String node) {
        return TestNamespace.isReady(lab.agentOf(node));
    }

    private static int agentRestarts(Lab lab, String node) {
        return TestNamespace.containerStatus(lab.agentOf(node), "device-plugin").getRestartCount();
    }

    private static Pod hostile(Lab lab) throws IOException {
        Pod pod = Pods.withGpuMemory(lab, "hostile", 500);
        Container main = pod.getSpec()
                .getContainers()
                .getFirst()
                .edit()
                .withCommand("python3", "-c", resource("lease.py"))
                .build();
        return pod.edit()
                .editSpec()
                .withContainers(IntStream.range(0, HOSTILE)
                        .mapToObj(i -> main.edit()
                                .withName(i == 0 ? Pods.MAIN : "main" + i)
                                .build())
                        .toList())
                .endSpec()
                .build();
    }

    private static String resource(String name) throws IOException {
        try (InputStream resource = HostileFilesIT.class.getResourceAsStream(name)) {
            return new String(resource.readAllBytes(), StandardCharsets.UTF_8);
        }
    }
}
