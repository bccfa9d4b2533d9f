package io.aliquot.lab;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.aliquot.api.Annotations;
import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.api.Labels;
import io.aliquot.api.Resources;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.regex.Pattern;
import java.util.stream.IntStream;

/**
 * Nodes that nobody stands behind, with GPUs like those of a real one under other names: pods are bound there as anywhere
 * and never start, so that many can come and go.
 */
final class HollowNodes implements AutoCloseable {
    private static final String LABEL = "aliquot-lab/hollow";

    private final Lab lab;
    private final int count;

    /**
     * What a node has.
     *
     * @param gpus whose UUIDs are others on each node
     */
    record Kind(int cpus, List<Gpu> gpus) {}

    /** Nodes with the GPUs of a real one. */
    HollowNodes(Lab lab, int count) {
        this(
                lab,
                Collections.nCopies(
                        count,
                        new Kind(64, Allocations.inventory(lab, lab.nodes().get(0)).gpus())));
    }

    HollowNodes(Lab lab, List<Kind> kinds) {
        this.lab = lab;
        this.count = kinds.size();
        close(); // what a killed test has left
        try {
            for (int i = 0; i < count; i++) {
                make(name(i), kinds.get(i));
            }
        } catch (RuntimeException e) {
            close();
            throw e;
        }
    }

    /** As many GPUs as that, unlinked, of one kind. */
    static Kind kind(int cpus, int count, String model, int memoryMiB) {
        return new Kind(
                cpus,
                IntStream.range(0, count)
                        .mapToObj(index -> new Gpu(
                                "GPU-" + new UUID(0, index), index, model, memoryMiB, 0, 0, true, Gpu.SHIM, Map.of()))
                        .toList());
    }

    int count() {
        return count;
    }

    List<String> names() {
        return IntStream.range(0, count).mapToObj(HollowNodes::name).toList();
    }

    private static String name(int number) {
        return "hollow-" + number;
    }

    private void make(String name, Kind kind) {
        Inventory real = Allocations.inventory(lab, lab.nodes().get(0));
        String inventory = new Inventory(
                        real.visibleDevices(), real.memoryScaling(), real.coreScaling(), real.slots(), kind.gpus())
                .print();
        lab.client()
                .resource(new NodeBuilder()
                        .withNewMetadata()
                        .withName(name)
                        .addToLabels(Labels.GPU, Labels.GPU_ON)
                        .addToLabels("kubernetes.io/hostname", name)
                        .addToLabels(LABEL, "")
                        .endMetadata()
                        .withNewSpec()
                        // else the DaemonSet would send an agent there, which would never be ready
                        .addNewTaint()
                        .withKey(LABEL)
                        .withEffect("NoSchedule")
                        .endTaint()
                        .endSpec()
                        .build())
                .create();
        try (KubernetesClient kubelet = lab.as("system:node:" + name, Map.of());
                KubernetesClient agent = lab.as(
                        "system:serviceaccount:" + Lab.NAMESPACE + ":aliquot-device-plugin",
                        Map.of("authentication.kubernetes.io%2Fnode-name", List.of(name)))) {
            report(kubelet, name, kind, real.slots());
            String own = Pattern.compile("GPU-[0-9a-f-]{36}")
                    .matcher(inventory)
                    .replaceAll(match -> "GPU-" + UUID.nameUUIDFromBytes((name + match.group()).getBytes(UTF_8)));
            agent.nodes()
                    .withName(name)
                    .patch(
                            PatchContext.of(PatchType.JSON_MERGE),
                            "{\"metadata\":{\"annotations\":{\"" + Annotations.GPUS + "\":" + quoted(own) + "}}}");
        }
    }

    /** Says of a node's resources what its kubelet would, while controllers may change the node, too. */
    static void report(KubernetesClient kubelet, String node, Kind kind, int slots) {
        Map<String, Quantity> resources = resources(kind, slots);
        kubelet.nodes()
                .withName(node)
                .subresource("status")
                .patch(
                        PatchContext.of(PatchType.JSON_MERGE),
                        Serialization.asJson(
                                Map.of("status", Map.of("capacity", resources, "allocatable", resources))));
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + "\"";
    }

    private static Map<String, Quantity> resources(Kind kind, int slots) {
        int gpus = kind.gpus().size();
        int memoryMiB = kind.gpus().stream().mapToInt(Gpu::memoryMiB).sum();
        var resources = new HashMap<String, Quantity>();
        Map.of(
                        "cpu",
                        Integer.toString(kind.cpus()),
                        "memory",
                        "512Gi",
                        "pods",
                        "250",
                        Resources.GPU,
                        Integer.toString(gpus * slots),
                        Resources.MEMORY,
                        Integer.toString(memoryMiB),
                        Resources.CORES,
                        Integer.toString(gpus * 100),
                        Resources.MEMORY_PERCENTAGE,
                        Integer.toString(gpus * 100))
                .forEach((name, amount) -> resources.put(name, new Quantity(amount)));
        return resources;
    }

    /** The pod, for these nodes alone. */
    static Pod only(Pod pod) {
        return too(pod).edit().editSpec().addToNodeSelector(LABEL, "").endSpec().build();
    }

    /** The pod, for these nodes and all others. */
    static Pod too(Pod pod) {
        return pod.edit()
                .editSpec()
                .addNewToleration()
                .withOperator("Exists")
                .endToleration()
                .endSpec()
                .build();
    }

    @Override
    public void close() {
        lab.client().nodes().withLabel(LABEL).delete();
    }
}
