package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;
import tools.jackson.databind.json.JsonMapper;

/**
 * Measures what {@code ./aliquot figures} publishes; not part of {@code verify}. Appends lines of {@code name|number}
 * to {@code target/figures.txt}.
 */
@ExtendWith(LabExtension.class)
@Isolated
class Figures {
    private static final int PODS = 50;
    private static final int RESIZES = 20;
    private static final int NODES = 100;
    private static final int CONTAINERS = 40;
    private static final String AGENT = "node agent with 8 GPUs and 40 containers: ";
    private static final String GPU = """
            {"model":"NVIDIA A100-SXM4-80GB","memoryMiB":81920,"multiprocessors":108,"contextMiB":256}""";

    private static final String RESIDENT_KILOBYTES = "awk '/^VmRSS/ { print $2 }' /proc/$pid/status";

    @Test
    void startTimeOf50PodsInSequence(Lab lab, TestNamespace namespace) throws IOException {
        namespace.run(Pods.withGpuMemory(lab, "warm-up", 1000));
        namespace.delete("warm-up");
        AuditLog log = AuditLog.fromNowOn(lab);
        var milliseconds = new long[PODS];
        for (int i = 0; i < PODS; i++) {
            String name = "pod-" + i;
            long begin = System.nanoTime();
            namespace.create(Pods.withGpuMemory(lab, name, 1000));
            namespace.awaitRunning(name, TestNamespace.EVENTUALLY);
            milliseconds[i] = (System.nanoTime() - begin) / 1_000_000;
            namespace.delete(name);
        }
        Arrays.sort(milliseconds);
        publish("50 pods in sequence: creation to running container, p50", milliseconds[PODS / 2] + " ms");
        publish("50 pods in sequence: creation to running container, maximum", milliseconds[PODS - 1] + " ms");
        publish(
                "API writes of Aliquot's service accounts for these 50 pods, without Events and Leases",
                Integer.toString(log.aliquotWrites().size()));
    }

    /** From before the request until a process of the container sees the new limit. */
    @Test
    void resizeThroughTheApi(Lab lab, TestNamespace namespace) throws IOException {
        namespace.run(Pods.withGpuMemory(lab, "resized", 3000));
        var milliseconds = new long[RESIZES];
        for (int i = 0; i < RESIZES; i++) {
            int memory = 3001 + i;
            var seen = CompletableFuture.supplyAsync(
                    () -> namespace
                            .exec("resized", "bash", "-c", """
                            echo > /tmp/ready
                            until nvidia-smi | grep -q "0MiB./.%dMiB"; do :; done
                            date +%%s%%3N
                            """.formatted(memory))
                            .expectSuccess(),
                    task -> Thread.ofPlatform().start(task));
            TestNamespace.awaitTrue(
                    "the loop runs",
                    TestNamespace.EVENTUALLY,
                    () -> namespace.exec("resized", "rm", "/tmp/ready").exit() == 0);
            long begin = System.currentTimeMillis();
            lab.client()
                    .genericKubernetesResources("gpu.aliquot.io/v1alpha1", "GpuShare")
                    .inNamespace(namespace.name())
                    .withName("resized")
                    .patch(
                            PatchContext.of(PatchType.JSON_MERGE),
                            "{\"spec\":{\"containers\":[{\"name\":\"main\",\"memoryMiB\":" + memory + "}]}}");
            milliseconds[i] = Long.parseLong(seen.join().trim()) - begin;
        }
        Arrays.sort(milliseconds);
        String what = RESIZES + " resizes through the API: request to effect in the container, ";
        publish(what + "median", milliseconds[RESIZES / 2] + " ms");
        publish(what + "maximum", milliseconds[RESIZES - 1] + " ms");
    }

    @Test
    void memoryOfSchedulerAndDevicePluginWith100Nodes(Lab lab) throws IOException, InterruptedException {
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
                try (KubernetesClient agent = lab.impersonate(
                        "system:serviceaccount:" + Lab.NAMESPACE + ":aliquot-device-plugin",
                        Map.of("authentication.kubernetes.io%2Fnode-name", List.of(name)))) {
                    agent.nodes()
                            .withName(name)
                            .patch(
                                    PatchContext.of(PatchType.JSON_MERGE),
                                    "{\"metadata\":{\"annotations\":{\"" + Annotations.GPUS + "\":"
                                            + new JsonMapper().writeValueAsString(inventory(lab)) + "}}}");
                }
            }
            Thread.sleep(20_000); // the extender's caches fill
            publish("RSS of the extender with 100 nodes", rss(lab, "scheduler", "extender") + " MB");
            publish("RSS of the device plugin", rss(lab, "device-plugin", "device-plugin") + " MB");
        } finally {
            hollow.forEach(name -> lab.client().nodes().withName(name).delete());
        }
    }

    /** Each container has one process that holds memory, five on each GPU. */
    @Test
    void nodeAgentWith8GpusAnd40ContainersAtOneSampleASecond(Lab lab, TestNamespace namespace)
            throws IOException, InterruptedException {
        String node = lab.nodes().getFirst();
        lab.helm(
                "upgrade",
                "--reuse-values",
                "--wait",
                "--set-json",
                "fakeDriver.nodes." + node + "=[" + String.join(",", Collections.nCopies(8, GPU)) + "]");
        try {
            TestNamespace.awaitTrue(
                    "8 GPUs", TestNamespace.EVENTUALLY, () -> lab.allocatable(node, Resources.VGPU) == 80);
            for (int i = 0; i < CONTAINERS; i++) {
                namespace.create(user(lab, node, "user-" + i));
            }
            for (int i = 0; i < CONTAINERS; i++) {
                namespace.awaitRunning("user-" + i, TestNamespace.EVENTUALLY);
            }
            awaitSeries(lab, node, CONTAINERS);
            Thread.sleep(20_000); // start-up compilation ends
            AuditLog log = AuditLog.fromNowOn(lab);
            long before = cpuTicks(lab, node);
            Thread.sleep(60_000);
            long ticks = cpuTicks(lab, node) - before;
            publish(AGENT + "CPU", "%.1f %% of a core".formatted(ticks / 60.0));
            publish(AGENT + "resident memory", megabytes(agentValue(lab, node, RESIDENT_KILOBYTES)) + " MB");
            publish(
                    AGENT + "API writes in a minute",
                    Long.toString(log.aliquotWrites().stream()
                            .filter(write -> write.user().equals("aliquot-device-plugin"))
                            .count()));
            publish(
                    AGENT + "first allocation to attribution, maximum of 5 new containers",
                    longestAttribution(lab, node, namespace) + " ms");
            publishRestart(lab, node, namespace);
        } finally {
            namespace.deleteAllPods();
            lab.aliquot("helm", "rollback", "aliquot", "--namespace", Lab.NAMESPACE, "--wait")
                    .expectSuccess();
        }
    }

    private static Pod user(Lab lab, String node, String name) {
        Pod pod = Pods.onNode(Pods.withGpuMemory(lab, name, 500), node);
        pod.getMetadata().getAnnotations().put(Annotations.GPU_PLACEMENT, "spread");
        pod.getSpec().getContainers().getFirst().setCommand(List.of("vgpu-sample", "alloc", "100", "hold"));
        return pod;
    }

    private static void awaitSeries(Lab lab, String node, int containers) {
        TestNamespace.awaitTrue(
                containers + " series",
                TestNamespace.EVENTUALLY,
                () -> series(lab, node, "").count() == containers);
    }

    /** The agent's lines about containers with a process on a GPU. */
    private static Stream<String> series(Lab lab, String node, String labels) {
        return Lab.metrics(lab.agentOf(node), 9091)
                .lines()
                .filter(line -> line.startsWith("aliquot_container_processes{") && line.contains(labels));
    }

    /** Milliseconds from the log line of a container's first allocation until the agent's metrics have the container. */
    private static long longestAttribution(Lab lab, String node, TestNamespace namespace) throws InterruptedException {
        long longest = 0;
        for (int i = 0; i < 5; i++) {
            String name = "late-" + i;
            namespace.create(user(lab, node, name));
            while (series(lab, node, "pod=\"" + name + "\"").findAny().isEmpty()) {
                Thread.sleep(50);
            }
            Instant attributed = Instant.now();
            namespace.awaitRunning(name, TestNamespace.EVENTUALLY); // the kubelet serves its log
            String line = lab.kubectl("logs", "--timestamps", "--namespace", namespace.name(), name)
                    .expectSuccess();
            Instant allocated = Instant.parse(line.substring(0, line.indexOf(' ')));
            longest = Math.max(longest, Duration.between(allocated, attributed).toMillis());
        }
        return longest;
    }

    /** Kills the agent under its running containers. */
    private static void publishRestart(Lab lab, String node, TestNamespace namespace) throws IOException {
        List<String> before = containerIds(namespace);
        long begin = System.nanoTime();
        String killed = TestNamespace.containerStatus(lab.agentOf(node), "device-plugin")
                .getContainerID();
        lab.killContainer(node, killed);
        TestNamespace.awaitTrue(
                "another agent",
                TestNamespace.EVENTUALLY,
                () -> lab.componentPods("device-plugin").stream()
                        .filter(pod -> pod.getSpec().getNodeName().equals(node))
                        .map(pod -> TestNamespace.containerStatus(pod, "device-plugin"))
                        .anyMatch(status ->
                                status.getReady() && !status.getContainerID().equals(killed)));
        awaitSeries(lab, node, before.size());
        long seconds = (System.nanoTime() - begin) / 1_000_000_000;
        long restarted = containerIds(namespace).stream()
                .filter(id -> !before.contains(id))
                .count();
        publish(AGENT + "killed agent until it reports all of them again", seconds + " s");
        publish(AGENT + "containers that a killed agent restarts", Long.toString(restarted));
    }

    private static List<String> containerIds(TestNamespace namespace) {
        return namespace.client().pods().inNamespace(namespace.name()).list().getItems().stream()
                .map(pod -> pod.getStatus().getContainerStatuses().getFirst().getContainerID())
                .toList();
    }

    /** CPU time of the node agent, user and system, in ticks of 10 ms. */
    private static long cpuTicks(Lab lab, String node) {
        return agentValue(lab, node, "awk '{ print $14 + $15 }' /proc/$pid/stat");
    }

    private static long agentValue(Lab lab, String node, String command) {
        return processValue(lab, lab.agentOf(node), "device-plugin", command);
    }

    /** A number that a command prints about a container's main process $pid. */
    private static long processValue(Lab lab, Pod pod, String container, String command) {
        String id =
                TestNamespace.containerStatus(pod, container).getContainerID().replaceFirst("^containerd://", "");
        String number = lab.onNode(
                        pod.getSpec().getNodeName(),
                        "bash",
                        "-c",
                        "pid=$(ctr -n k8s.io tasks ls | awk -v id=" + id + " '$1 == id { print $2 }'); " + command)
                .expectSuccess()
                .trim();
        assertThat(number).matches("[0-9]+");
        return Long.parseLong(number);
    }

    /** An inventory of eight GPUs of a real node's model, under other UUIDs. */
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

    /** Resident memory of a container's main process, in MB. */
    private static long rss(Lab lab, String component, String container) {
        Pod pod = lab
                .client()
                .pods()
                .inNamespace(Lab.NAMESPACE)
                .withLabel("app.kubernetes.io/component", component)
                .list()
                .getItems()
                .stream()
                .filter(TestNamespace::isRunning) // the agents' pods on hollow nodes never start
                .findFirst()
                .orElseThrow();
        return megabytes(processValue(lab, pod, container, RESIDENT_KILOBYTES));
    }

    private static long megabytes(long kilobytes) {
        return Math.round(kilobytes * 1024 / 1e6);
    }

    private static void publish(String name, String number) throws IOException {
        Path file = Path.of("target", "figures.txt").toAbsolutePath();
        Files.writeString(file, name + "|" + number + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }
}
