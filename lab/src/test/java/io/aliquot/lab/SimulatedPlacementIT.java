package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.aliquot.api.Annotations;
import io.aliquot.api.Placement;
import io.aliquot.api.Resources;
import io.aliquot.api.Vgpu;
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
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Pods are placed for real, one after another, and then the cluster's own dump is given to {@code simulate}: what each GPU
 * holds is the same to the MiB, and nothing like what another policy would have made of it.
 *
 * <p>The other plugins of kube-scheduler can't disturb: the winner's score is at least 50 points above any other's, and
 * of theirs only ImageLocality differs from node to node here, by a few points.
 */
@ExtendWith(LabExtension.class)
class SimulatedPlacementIT {
    /** Twice what there is room for, so that the last ones fit only here and there. */
    private static final int PODS = 56;

    private static final ObjectMapper JSON = new ObjectMapper();

    /** CPU in thousandths of a core, which not all nodes have enough of, and limits. */
    private record Shape(int cpuMillis, Map<String, String> limits) {}

    private static final List<Shape> SHAPES = List.of(
            new Shape(100, Map.of(Resources.MEMORY, "8000", Resources.CORES, "20")),
            new Shape(0, Map.of(Resources.MEMORY_PERCENTAGE, "30", Resources.CORES, "15")),
            new Shape(3000, Map.of(Resources.MEMORY, "33000", Resources.CORES, "60")),
            new Shape(2000, Map.of(Resources.GPU, "1")),
            new Shape(100, Map.of(Resources.CORES, "50", Resources.MEMORY, "20000")),
            new Shape(4000, Map.of(Resources.GPU, "2", Resources.MEMORY, "16000", Resources.CORES, "40")),
            new Shape(500, Map.of(Resources.MEMORY, "12000")),
            new Shape(6000, Map.of(Resources.GPU, "2")),
            new Shape(200, Map.of(Resources.MEMORY_PERCENTAGE, "60")));

    @TempDir
    @SuppressWarnings("NullAway.Init")
    private Path folder;

    @ParameterizedTest
    @EnumSource
    void theSimulatorPlacesAsTheSchedulerDoes(Placement policy, Lab lab, TestNamespace space) throws IOException {
        List<HollowNodes.Kind> kinds = List.of(
                HollowNodes.kind(64, 4, "NVIDIA L40S", 46068),
                HollowNodes.kind(12, 4, "NVIDIA L40S", 46068),
                HollowNodes.kind(16, 1, "NVIDIA L4", 23034),
                HollowNodes.kind(32, 2, "NVIDIA A100-SXM4-80GB", 81920));
        try (var nodes = new HollowNodes(lab, kinds)) {
            if (policy == Placement.FRAGMENTATION) {
                // What it has learnt from earlier tests' pods can't be given to the simulator.
                new SchedulerReplicas(lab).restart(EVENTUALLY.multipliedBy(2));
            }
            List<Pod> pods = place(lab, space, policy);
            long bound = pods.stream().filter(TestNamespace::bound).count();
            assertThat(bound).isBetween(30L, PODS - 5L);
            assertThat(pods.stream()
                            .filter(TestNamespace::bound)
                            .map(pod -> pod.getSpec().getNodeName()))
                    .as("nodes in use")
                    .containsAll(lab.nodes())
                    .containsAll(nodes.names());

            Map<String, Simulated> simulated = simulate(lab, space);

            assertThat(simulated.get(name(policy)))
                    .as("what each GPU holds by %s, and how many pods are placed", policy)
                    .isEqualTo(new Simulated(bound, held(pods)));
            simulated.forEach((other, result) -> {
                if (!other.equals(name(policy))) {
                    assertThat(result.gpus())
                            .as("what GPUs hold by %s is not what they hold by %s", other, policy)
                            .isNotEqualTo(held(pods));
                }
            });
            end(space, pods, nodes);
        }
    }

    /** So that the next test finds all GPUs free: what is deleted before it has ended holds its share for some seconds. */
    private static void end(TestNamespace space, List<Pod> pods, HollowNodes nodes) {
        // First those that wait, else they would be bound while the others go.
        pods.stream()
                .filter(pod -> !TestNamespace.bound(pod))
                .forEach(pod -> space.delete(pod.getMetadata().getName()));
        pods.stream()
                .filter(pod ->
                        nodes.names().contains(String.valueOf(pod.getSpec().getNodeName())))
                .forEach(pod -> space.end(pod.getMetadata().getName()));
    }

    /** One after another, each once the one before has its node or is told that there is none. */
    private static List<Pod> place(Lab lab, TestNamespace space, Placement policy) {
        Map<String, String> annotations =
                Map.of(Annotations.NODE_PLACEMENT, name(policy), Annotations.GPU_PLACEMENT, name(policy));
        for (int i = 0; i < PODS; i++) {
            Shape shape = SHAPES.get(i % SHAPES.size());
            // The dump has pods of one second by their names.
            String name = String.format(Locale.ROOT, "pod-%02d", i);
            Pod pod = HollowNodes.too(Pods.annotated(Pods.asking(lab, name, shape.limits()), annotations));
            space.create(pod.edit()
                    .editSpec()
                    .editFirstContainer()
                    .editResources()
                    .withRequests(Map.of("cpu", new Quantity(shape.cpuMillis() + "m")))
                    .endResources()
                    .endContainer()
                    .endSpec()
                    .build());
            space.await(name, "is bound or told to wait", EVENTUALLY, now -> TestNamespace.bound(now) || TestNamespace.waits(now));
        }
        return space.client().pods().inNamespace(space.name()).list().getItems();
    }

    private static String name(Placement policy) {
        return policy.name().toLowerCase(Locale.ROOT);
    }

    /** Memory, cores and number of the vGPUs of each GPU that has any, by its UUID. */
    private static Map<String, List<Long>> held(List<Pod> pods) {
        var held = new TreeMap<String, List<Long>>();
        for (Pod pod : pods) {
            for (Vgpu vgpu : Allocations.of(pod, Pods.MAIN)) {
                held.merge(
                        vgpu.uuid(),
                        List.of((long) vgpu.memoryMiB(), (long) vgpu.cores(), 1L),
                        (one, other) -> List.of(
                                one.get(0) + other.get(0), one.get(1) + other.get(1), one.get(2) + other.get(2)));
            }
        }
        return held;
    }

    /**
     * What came of a policy.
     *
     * @param placed pods
     * @param gpus as {@link #held} has them
     */
    private record Simulated(long placed, Map<String, List<Long>> gpus) {}

    /** With all three policies. */
    private Map<String, Simulated> simulate(Lab lab, TestNamespace space) throws IOException {
        Path dump = folder.resolve("dump.json");
        Files.writeString(dump, dump(lab, space));
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
            assertThat(figures.get("pods").asInt()).isEqualTo(PODS);
            long placed = PODS;
            for (JsonNode failed : figures.get("failed")) {
                placed -= failed.asLong();
            }
            simulated.put(result.get("policy").asText(), new Simulated(placed, gpus(report.get("nodes"), result)));
        }
        return simulated;
    }

    private static Map<String, List<Long>> gpus(JsonNode nodes, JsonNode result) {
        var gpus = new TreeMap<String, List<Long>>();
        for (int node = 0; node < nodes.size(); node++) {
            JsonNode uuids = nodes.get(node).get("uuids");
            for (int gpu = 0; gpu < uuids.size(); gpu++) {
                String at = "/" + node + "/" + gpu;
                JsonNode held = result.get("held");
                long vgpus = held.get("vgpus").at(at).asLong();
                if (vgpus > 0) {
                    gpus.put(
                            uuids.get(gpu).asText(),
                            List.of(
                                    held.get("memoryMiB").at(at).asLong(),
                                    held.get("cores").at(at).asLong(),
                                    vgpus));
                }
            }
        }
        return gpus;
    }

    /**
     * The cluster's, with two changes: the pods don't say by which policy they are placed, so that {@code --policy} does,
     * and those that were there before stay where they are, as a DaemonSet's do, instead of being placed anew.
     */
    private static String dump(Lab lab, TestNamespace space) throws IOException {
        JsonNode dump = JSON.readTree(
                lab.kubectl("get", "nodes,pods", "-A", "-o", "json").expectSuccess());
        for (JsonNode item : dump.get("items")) {
            var metadata = (ObjectNode) item.get("metadata");
            if (item.get("kind").asText().equals("Pod")) {
                if (metadata.get("namespace").asText().equals(space.name())) {
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
