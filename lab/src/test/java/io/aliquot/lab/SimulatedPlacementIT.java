package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.aliquot.api.pods.Placement;
import io.aliquot.api.pods.Vgpu;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Quantity;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

/**
 * Compares {@code simulate} with the scheduler. The scheduler places pods in sequence, then {@code simulate} places
 * those of the cluster's dump: the allocations of each GPU are the same to the MiB, and differ from those of other
 * policies.
 *
 * <p>The other plugins of kube-scheduler cannot interfere: the winner's score is at least 50 points above any other's,
 * and of the plugins' scores only ImageLocality's differs between the nodes, by a few points.
 */
@LongTier.Only
@ExtendWith(LabExtension.class)
@Isolated
class SimulatedPlacementIT {
    /** Twice as many as fit, so that the last ones fit on few nodes only. */
    private static final int PODS = 56;

    private static final JsonMapper JSON = new JsonMapper();

    /** CPU request in millicores, which not all nodes have free, and limits on GPU resources. */
    private record Shape(int cpuMillis, Map<String, String> limits) {}

    private static final List<Shape> SHAPES = List.of(
            new Shape(100, Map.of(Resources.MEMORY, "8000", Resources.CORES, "20")),
            new Shape(0, Map.of(Resources.MEMORY_PERCENTAGE, "30", Resources.CORES, "15")),
            new Shape(3000, Map.of(Resources.MEMORY, "33000", Resources.CORES, "60")),
            new Shape(2000, Map.of(Resources.VGPU, "1")),
            new Shape(100, Map.of(Resources.CORES, "50", Resources.MEMORY, "20000")),
            new Shape(4000, Map.of(Resources.VGPU, "2", Resources.MEMORY, "16000", Resources.CORES, "40")),
            new Shape(500, Map.of(Resources.MEMORY, "12000")),
            new Shape(6000, Map.of(Resources.VGPU, "2")),
            new Shape(200, Map.of(Resources.MEMORY_PERCENTAGE, "60")));

    @TempDir
    @SuppressWarnings("NullAway.Init")
    private Path folder;

    @ParameterizedTest
    @EnumSource
    void theSimulatorPlacesPodsAsTheSchedulerDoes(Placement policy, Lab lab, TestNamespace namespace)
            throws IOException {
        List<HollowNodes.Hardware> hardware = List.of(
                HollowNodes.hardware(64, 4, "NVIDIA L40S", 46068),
                HollowNodes.hardware(12, 4, "NVIDIA L40S", 46068),
                HollowNodes.hardware(16, 1, "NVIDIA L4", 23034),
                HollowNodes.hardware(32, 2, "NVIDIA A100-SXM4-80GB", 81920));
        try (var nodes = new HollowNodes(lab, hardware)) {
            if (policy == Placement.FRAGMENTATION) {
                // Discards what the policy has learned from earlier tests' pods, which the simulator does not know.
                new SchedulerReplicas(lab).restart(EVENTUALLY.multipliedBy(2));
            }
            List<Pod> pods = place(lab, namespace, policy);
            long bound = pods.stream().filter(TestNamespace::isBound).count();
            assertThat(bound).isBetween(30L, PODS - 5L);
            assertThat(pods.stream()
                            .filter(TestNamespace::isBound)
                            .map(pod -> pod.getSpec().getNodeName()))
                    .as("nodes in use")
                    .containsAll(lab.nodes())
                    .containsAll(nodes.names());

            Map<String, Simulated> simulated = simulate(lab, namespace);

            assertThat(simulated.get(name(policy)))
                    .as("number of placed pods and allocations of each GPU with %s", policy)
                    .isEqualTo(new Simulated(bound, allocations(pods)));
            simulated.forEach((other, result) -> {
                if (!other.equals(name(policy))) {
                    assertThat(result.gpus())
                            .as("allocations with %s differ from those with %s", other, policy)
                            .isNotEqualTo(allocations(pods));
                }
            });
            endPods(namespace, pods, nodes);
        }
    }

    /**
     * Frees all GPUs for the next test. Pods end before their deletion, as the share of a pod that is deleted earlier
     * stays allocated for seconds.
     */
    private static void endPods(TestNamespace namespace, List<Pod> pods, HollowNodes nodes) {
        // Deletes Pending pods first: they would be bound while the others end.
        pods.stream()
                .filter(pod -> !TestNamespace.isBound(pod))
                .forEach(pod -> namespace.delete(pod.getMetadata().getName()));
        pods.stream()
                .filter(pod ->
                        nodes.names().contains(String.valueOf(pod.getSpec().getNodeName())))
                .forEach(pod -> namespace.markSucceeded(pod.getMetadata().getName()));
    }

    /** Creates pods in sequence, each once the previous one is bound or Unschedulable. */
    private static List<Pod> place(Lab lab, TestNamespace namespace, Placement policy) {
        Map<String, String> annotations =
                Map.of(Annotations.NODE_PLACEMENT, name(policy), Annotations.GPU_PLACEMENT, name(policy));
        for (int i = 0; i < PODS; i++) {
            Shape shape = SHAPES.get(i % SHAPES.size());
            // Pods created in the same second are in the dump in the order of their names.
            String name = String.format(Locale.ROOT, "pod-%02d", i);
            Pod pod =
                    HollowNodes.tolerate(Pods.withAnnotations(Pods.withLimits(lab, name, shape.limits()), annotations));
            namespace.create(pod.edit()
                    .editSpec()
                    .editFirstContainer()
                    .editResources()
                    .withRequests(Map.of("cpu", new Quantity(shape.cpuMillis() + "m")))
                    .endResources()
                    .endContainer()
                    .endSpec()
                    .build());
            namespace.await(
                    name,
                    "is bound or Unschedulable",
                    EVENTUALLY,
                    now -> TestNamespace.isBound(now) || TestNamespace.isUnschedulable(now));
        }
        return namespace.client().pods().inNamespace(namespace.name()).list().getItems();
    }

    private static String name(Placement policy) {
        return policy.name().toLowerCase(Locale.ROOT);
    }

    /** Memory, cores and number of the vGPUs allocated of each GPU that has any, by UUID. */
    private static Map<String, List<Long>> allocations(List<Pod> pods) {
        var allocations = new TreeMap<String, List<Long>>();
        for (Pod pod : pods) {
            for (Vgpu vgpu : Allocations.of(pod, Pods.MAIN)) {
                allocations.merge(
                        vgpu.uuid(),
                        List.of((long) vgpu.memoryMiB(), (long) vgpu.cores(), 1L),
                        (one, other) -> List.of(
                                one.get(0) + other.get(0), one.get(1) + other.get(1), one.get(2) + other.get(2)));
            }
        }
        return allocations;
    }

    /**
     * The result of simulating a policy.
     *
     * @param placed number of pods placed
     * @param gpus allocations by UUID, as in {@link #allocations}
     */
    private record Simulated(long placed, Map<String, List<Long>> gpus) {}

    /** Simulates all three policies; the result is by policy. */
    private Map<String, Simulated> simulate(Lab lab, TestNamespace namespace) throws IOException {
        Path dump = folder.resolve("dump.json");
        Files.writeString(dump, dump(lab, namespace));
        JsonNode report = SimulateCommand.run(
                lab,
                folder,
                "--dump",
                dump.toString(),
                "--arrivals",
                "given",
                "--policy",
                Arrays.stream(Placement.values())
                        .map(SimulatedPlacementIT::name)
                        .collect(Collectors.joining(",")),
                "--seeds",
                "1");
        var simulated = new HashMap<String, Simulated>();
        for (JsonNode result : report.get("results")) {
            JsonNode figures = result.at("/replays/0");
            assertThat(figures.get("pods").asInt(0)).isEqualTo(PODS);
            long placed = PODS;
            for (JsonNode failed : figures.get("failed")) {
                placed -= failed.asLong(0);
            }
            simulated.put(result.get("policy").asString(""), new Simulated(placed, gpus(report.get("nodes"), result)));
        }
        return simulated;
    }

    private static Map<String, List<Long>> gpus(JsonNode nodes, JsonNode result) {
        var gpus = new TreeMap<String, List<Long>>();
        for (int node = 0; node < nodes.size(); node++) {
            JsonNode uuids = nodes.get(node).get("uuids");
            for (int gpu = 0; gpu < uuids.size(); gpu++) {
                String at = "/" + node + "/" + gpu;
                JsonNode allocations = result.get("held");
                long vgpus = allocations.get("vgpus").at(at).asLong(0);
                if (vgpus > 0) {
                    gpus.put(
                            uuids.get(gpu).asString(""),
                            List.of(
                                    allocations.get("memoryMiB").at(at).asLong(0),
                                    allocations.get("cores").at(at).asLong(0),
                                    vgpus));
                }
            }
        }
        return gpus;
    }

    /**
     * The cluster's dump, with two changes: the test's pods lose the annotations that name a policy, so that
     * {@code --policy} does, and all other pods belong to a DaemonSet, so that the simulator leaves them on their nodes.
     */
    private static String dump(Lab lab, TestNamespace namespace) throws IOException {
        JsonNode dump = JSON.readTree(
                lab.kubectl("get", "nodes,pods", "-A", "-o", "json").expectSuccess());
        for (JsonNode item : dump.get("items")) {
            var metadata = (ObjectNode) item.get("metadata");
            if (item.get("kind").asString("").equals("Pod")) {
                if (metadata.get("namespace").asString("").equals(namespace.name())) {
                    ((ObjectNode) metadata.get("annotations"))
                            .remove(List.of(Annotations.NODE_PLACEMENT, Annotations.GPU_PLACEMENT));
                } else {
                    metadata.putArray("ownerReferences").addObject().put("kind", "DaemonSet");
                }
            }
        }
        return JSON.writeValueAsString(dump);
    }
}
