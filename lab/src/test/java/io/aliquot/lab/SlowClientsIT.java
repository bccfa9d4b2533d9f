package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Pod;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * A pod keeps 200 slow connections open to each port of the scheduler's replicas and of the node agents. Probes, admission,
 * scheduling and discovery go on, and no container restarts.
 */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class SlowClientsIT {
    private static final Duration ATTACK = Duration.ofSeconds(60);

    /** A probe's timeout in the chart, and a second for the connection on a busy machine. */
    private static final Duration PROBE = Duration.ofSeconds(2);

    private static final Pattern OPENED = Pattern.compile("=([0-9]{1,9})");

    private static final Map<String, List<Integer>> PORTS =
            Map.of("scheduler", List.of(9090, 9443), "device-plugin", List.of(9091, 9092));

    @Test
    void probesAdmissionSchedulingAndDiscoveryGoOnBesideSlowClients(Lab lab, TestNamespace namespace) throws Exception {
        new SchedulerReplicas(lab).awaitReady(EVENTUALLY.multipliedBy(4));
        Map<String, Integer> restarts = restarts(lab);
        startAttack(lab, namespace);
        long end = System.nanoTime() + ATTACK.toNanos();
        try (HttpClient http = HttpClient.newBuilder().connectTimeout(PROBE).build()) {
            for (int i = 0; System.nanoTime() < end; i++) {
                for (String component : PORTS.keySet()) {
                    for (Pod pod : lab.componentPods(component)) {
                        probe(http, pod, component.equals("scheduler") ? 9090 : 9091);
                    }
                }
                String name = "share-" + i % 5;
                Pod share = namespace.run(Pods.withGpuMemory(lab, name, 1000));
                assertThat(Allocations.of(share, Pods.MAIN)).hasSize(1);
                namespace.delete(name);
                assertThat(lab.kubectl("get", "gpushares", "--namespace", namespace.name())
                                .exit())
                        .isZero();
            }
        }

        assertThat(restarts(lab)).isEqualTo(restarts);
    }

    private static void startAttack(Lab lab, TestNamespace namespace) throws IOException {
        var command = new ArrayList<String>(List.of(
                "bash",
                "-c",
                "ulimit -n 10000; nohup python3 -c \"$@\" > /tmp/out 2>&1 &",
                "-",
                script(),
                Long.toString(ATTACK.plusSeconds(30).toSeconds())));
        PORTS.forEach((component, ports) -> lab.componentPods(component)
                .forEach(
                        pod -> ports.forEach(port -> command.add(pod.getStatus().getPodIP() + ":" + port))));
        int targets = command.size() - 6;
        namespace.run(Pods.withoutGpu(lab, "slow"));
        namespace.exec("slow", command.toArray(String[]::new)).expectSuccess();
        awaitTrue("most connections are open", EVENTUALLY, () -> opened(namespace) > targets * 150);
    }

    /** How many connections the pod has opened so far. */
    private static int opened(TestNamespace namespace) {
        String last = namespace.exec("slow", "tail", "-n", "1", "/tmp/out").out();
        return OPENED.matcher(last)
                .results()
                .mapToInt(count -> Integer.parseInt(count.group(1)))
                .sum();
    }

    private static void probe(HttpClient http, Pod pod, int port) throws InterruptedException {
        var address = URI.create("http://" + pod.getStatus().getPodIP() + ":" + port + "/livez");
        try {
            assertThat(http.send(HttpRequest.newBuilder(address).timeout(PROBE).build(), BodyHandlers.ofString())
                            .statusCode())
                    .isEqualTo(200);
        } catch (IOException e) {
            throw new AssertionError(address + " of " + pod.getMetadata().getName(), e);
        }
    }

    private static Map<String, Integer> restarts(Lab lab) {
        var restarts = new TreeMap<String, Integer>();
        PORTS.keySet()
                .forEach(component -> lab.componentPods(component)
                        .forEach(pod -> pod.getStatus()
                                .getContainerStatuses()
                                .forEach(container -> restarts.put(
                                        pod.getMetadata().getName() + "/" + container.getName(),
                                        container.getRestartCount()))));
        return restarts;
    }

    private static String script() throws IOException {
        try (InputStream resource = SlowClientsIT.class.getResourceAsStream("slow.py")) {
            return new String(resource.readAllBytes(), UTF_8);
        }
    }
}
