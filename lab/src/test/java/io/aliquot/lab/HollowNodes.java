package io.aliquot.lab;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
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
 * Nodes without a kubelet, with the GPUs of a real node under other UUIDs. The scheduler binds pods to them; the pods
 * never start, so that a test can create and delete many.
 */
final class HollowNodes implements AutoCloseable {
    private static final String LABEL = "aliquot-lab/hollow";

    private final Lab lab;
    private final int count;

    /**
     * The CPUs and GPUs of a node.
     *
     * @param gpus each node gets UUIDs of its own
     */
    record Hardware(int cpus, List<Gpu> gpus) {}

    /** Creates nodes with the GPUs of a real one. */
    HollowNodes(Lab lab, int count) {
        this(
                lab,
                Collections.nCopies(
                        count,
                        new Hardware(
                                64,
                                Allocations.inventory(lab, lab.nodes().get(0)).gpus())));
    }

    HollowNodes(Lab lab, List<Hardware> hardware) {
        this.lab = lab;
        this.count = hardware.size();
        close(); // deletes the nodes that a killed test left
        try {
            for (int i = 0; i < count; i++) {
                create(name(i), hardware.get(i));
            }
        } catch (RuntimeException e) {
            close();
            throw e;
        }
    }

    /** Hardware with {@code count} GPUs of one model and without links between them. */
    static Hardware hardware(int cpus, int count, String model, int memoryMiB) {
        return new Hardware(
                cpus,
                IntStream.range(0, count)
                        .mapToObj(index -> new Gpu(
                                "GPU-" + new UUID(0, index),
                                index,
                                model,
                                memoryMiB,
                                0,
                                0,
                                Gpu.HEALTHY,
                                Gpu.SHIM,
                                Map.of()))
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

    private void create(String name, Hardware hardware) {
        Inventory real = Allocations.inventory(lab, lab.nodes().get(0));
        String inventory = new Inventory(
                        real.visibleDevices(), real.memoryScaling(), real.coreScaling(), real.slots(), hardware.gpus())
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
                        // keeps the DaemonSet from creating an agent's pod, which would never be ready
                        .addNewTaint()
                        .withKey(LABEL)
                        .withEffect("NoSchedule")
                        .endTaint()
                        .endSpec()
                        .build())
                .create();
        try (KubernetesClient kubelet = lab.impersonate("system:node:" + name, Map.of());
                KubernetesClient agent = lab.impersonate(
                        "system:serviceaccount:" + Lab.NAMESPACE + ":aliquot-device-plugin",
                        Map.of("authentication.kubernetes.io%2Fnode-name", List.of(name)))) {
            reportResources(kubelet, name, hardware, real.slots());
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

    /** Reports a node's resources as its kubelet does; a patch, as controllers change the node at the same time. */
    static void reportResources(KubernetesClient kubelet, String node, Hardware hardware, int slots) {
        Map<String, Quantity> resources = resources(hardware, slots);
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

    private static Map<String, Quantity> resources(Hardware hardware, int slots) {
        int gpus = hardware.gpus().size();
        int memoryMiB = hardware.gpus().stream().mapToInt(Gpu::memoryMiB).sum();
        var resources = new HashMap<String, Quantity>();
        Map.of(
                        "cpu",
                        Integer.toString(hardware.cpus()),
                        "memory",
                        "512Gi",
                        "pods",
                        "250",
                        Resources.VGPU,
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

    /** The pod, with hollow nodes as its only candidates. */
    static Pod require(Pod pod) {
        return tolerate(pod)
                .edit()
                .editSpec()
                .addToNodeSelector(LABEL, "")
                .endSpec()
                .build();
    }

    /** The pod, with hollow nodes among its candidates. */
    static Pod tolerate(Pod pod) {
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
