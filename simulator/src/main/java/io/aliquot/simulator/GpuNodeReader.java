package io.aliquot.simulator;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.foreign.HamiRegistration;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.Quantity;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.SlotCount;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.scheduler.simulation.SimulatedNode;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/**
 * Reads the GPUs of a node: of a node with Aliquot as the scheduler does, of other nodes from the labels and
 * annotations of the product that runs there.
 *
 * <p>NVIDIA's GPU feature discovery: labels {@code nvidia.com/gpu.product}, {@code .memory} (MiB), {@code .count}
 * (github.com/NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery). HAMi: the annotation {@value #HAMI}, either {@code
 * uuid,slots,MiB,cores,type,numa,healthy:…} (github.com/Project-HAMi/HAMi, docs/develop/protocol.md) or, in later
 * versions, a JSON array. ACK: labels {@code aliyun.accelerator/nvidia_name}, {@code _mem}, {@code _count}.
 */
final class GpuNodeReader {
    static final String HAMI = HamiRegistration.REGISTER;
    private static final String PRODUCT = "nvidia.com/gpu.product";
    private static final String MEMORY = "nvidia.com/gpu.memory";
    private static final String COUNT = "nvidia.com/gpu.count";
    private static final String REPLICAS = "nvidia.com/gpu.replicas";
    private static final String ACK_NAME = "aliyun.accelerator/nvidia_name";
    private static final String ACK_MEMORY = "aliyun.accelerator/nvidia_mem";
    private static final String ACK_COUNT = "aliyun.accelerator/nvidia_count";
    private static final Pattern MIB = Pattern.compile("([0-9]{1,8})( ?Mi[Bb]?)?");
    private static final JsonMapper JSON = new JsonMapper();
    private static final VisibleDevices BY_UUID = new VisibleDevices("{uuid}");

    private GpuNodeReader() {}

    /** The result for one node. */
    sealed interface Reading {
        /**
         * A node that can be simulated.
         *
         * @param hami whether HAMi's annotation describes the GPUs
         * @param timeSliced whether its device plugin reports each GPU several times
         */
        record Known(SimulatedNode node, boolean hami, boolean timeSliced) implements Reading {}

        /** A node without GPUs. */
        record None() implements Reading {}

        /** A node with GPUs that cannot be simulated. */
        record Unknown(String reason) implements Reading {}
    }

    static Reading read(Node node) {
        if (node.getSpec() != null && Boolean.TRUE.equals(node.getSpec().getUnschedulable())) {
            return new Reading.Unknown("cordoned");
        }
        Map<String, String> labels = orEmpty(node.getMetadata().getLabels());
        Map<String, String> annotations = orEmpty(node.getMetadata().getAnnotations());
        try {
            if (annotations.containsKey(Annotations.GPUS)) {
                return new Reading.Known(SimulatedNode.read(withDefaultLabel(node, labels)), false, false);
            }
            if (annotations.containsKey(HAMI)) {
                return withHami(node, annotations.getOrDefault(HAMI, ""));
            }
            if (labels.containsKey(PRODUCT)) {
                return withLabels(node, labels, PRODUCT, MEMORY, COUNT);
            }
            if (labels.containsKey(ACK_NAME)) {
                return withLabels(node, labels, ACK_NAME, ACK_MEMORY, ACK_COUNT);
            }
        } catch (FormatException e) {
            return new Reading.Unknown(String.valueOf(e.getMessage()));
        }
        return allocatableGpus(node) == 0
                ? new Reading.None()
                : new Reading.Unknown(
                        "no annotation or label gives the model and memory of its GPUs; expected the annotation "
                                + Annotations.GPUS + " or " + HAMI + ", or the label " + PRODUCT);
    }

    /** The label of Aliquot's nodes is a setting of the cluster, which a dump does not tell; the agent's label is not. */
    private static Node withDefaultLabel(Node node, Map<String, String> labels) {
        return Labels.NODE_AGENT_ON.equals(labels.get(Labels.NODE_AGENT))
                ? new NodeBuilder(node)
                        .editMetadata()
                        .addToLabels(Labels.GPU, Labels.GPU_ON)
                        .endMetadata()
                        .build()
                : node;
    }

    /**
     * The node as if it ran Aliquot's agent with this inventory, and shared its GPUs instead of its present device plugin.
     * Its other settings remain.
     */
    private static SimulatedNode withAliquot(Node node, Inventory inventory) {
        var remaining = new LinkedHashMap<>(allocatable(node));
        remaining.keySet().removeIf(ForeignResources::servedByOtherPlugins);
        return SimulatedNode.read(new NodeBuilder(node)
                .editMetadata()
                .addToLabels(Labels.GPU, Labels.GPU_ON)
                .addToAnnotations(Annotations.GPUS, inventory.print())
                .removeFromAnnotations(HAMI)
                .endMetadata()
                .editOrNewStatus()
                .withAllocatable(remaining)
                .endStatus()
                .build());
    }

    private static Reading withLabels(
            Node node, Map<String, String> labels, String product, String memory, String count) {
        String model = labels.getOrDefault(product, "");
        if (model.contains("-MIG-")
                || labels.getOrDefault("nvidia.com/mig.strategy", "").equals("mixed")) {
            return new Reading.Unknown("its GPUs are partitioned by MIG");
        }
        Matcher mebibytes = MIB.matcher(labels.getOrDefault(memory, ""));
        if (!mebibytes.matches()) {
            throw expected("the label " + memory + " in MiB", labels.getOrDefault(memory, "none"));
        }
        long gpus = labels.containsKey(count) ? number(count, labels.getOrDefault(count, "")) : allocatableGpus(node);
        if (gpus == 0) {
            return new Reading.None();
        }
        var uniform =
                new UniformGpus((int) gpus, name(model), (int) number(memory, mebibytes.group(1)), SlotCount.DEFAULT);
        return new Reading.Known(
                withAliquot(node, uniform.inventory(node.getMetadata().getName())),
                false,
                model.endsWith("-SHARED") || !labels.getOrDefault(REPLICAS, "1").matches("[01]?"));
    }

    private static long number(String where, String text) {
        if (!text.matches("[0-9]{1,7}")) {
            throw expected("a whole number as " + where, text);
        }
        return Long.parseLong(text);
    }

    /** The model's name; a label's value has hyphens in place of spaces. */
    private static String name(String product) {
        String name =
                product.endsWith("-SHARED") ? product.substring(0, product.length() - "-SHARED".length()) : product;
        return name.startsWith("NVIDIA-") ? "NVIDIA " + name.substring("NVIDIA-".length()) : name;
    }

    private static Reading withHami(Node node, String text) {
        var gpus = new ArrayList<Gpu>();
        int slots = 1;
        for (Registered one : text.stripLeading().startsWith("[") ? json(text) : list(text)) {
            gpus.add(new Gpu(
                    one.uuid,
                    gpus.size(),
                    one.type.startsWith("NVIDIA-") ? one.type.substring("NVIDIA-".length()) : one.type,
                    one.mebibytes,
                    0,
                    one.numa,
                    one.healthy
                            ? Gpu.HEALTHY
                            : new GpuHealth.Unhealthy("unhealthy by HAMi's node agent", Instant.EPOCH),
                    Gpu.SHIM,
                    Map.of()));
            slots = Math.max(slots, one.slots);
        }
        if (gpus.isEmpty()) {
            return new Reading.None();
        }
        var inventory = new Inventory(BY_UUID, Scaling.ONE, Scaling.ONE, Math.min(slots, SlotCount.MOST), gpus);
        return new Reading.Known(withAliquot(node, inventory), true, false);
    }

    /** A GPU as HAMi's agent registers it. */
    private record Registered(String uuid, int slots, int mebibytes, String type, int numa, boolean healthy) {}

    private static List<Registered> list(String text) {
        var gpus = new ArrayList<Registered>();
        for (String one : text.strip().split(":", -1)) {
            String[] fields = one.split(",", -1);
            if (fields.length >= 7) {
                gpus.add(new Registered(
                        fields[0],
                        (int) number(HAMI, fields[1]),
                        (int) number(HAMI, fields[2]),
                        fields[4],
                        numa(fields[5]),
                        Boolean.parseBoolean(fields[6])));
            } else if (!one.isBlank()) {
                throw expected("uuid,slots,MiB,cores,type,numa,healthy in " + HAMI, one);
            }
        }
        return gpus;
    }

    private static int numa(String text) {
        return text.matches("[0-9]{1,3}") ? Integer.parseInt(text) : -1;
    }

    private static List<Registered> json(String text) {
        JsonNode array;
        try {
            array = JSON.readTree(text);
        } catch (JacksonException e) {
            throw new FormatException(HAMI + ": " + e.getOriginalMessage(), e);
        }
        var gpus = new ArrayList<Registered>();
        for (JsonNode one : array) {
            gpus.add(new Registered(
                    one.path("id").asString(""),
                    one.path("count").asInt(1),
                    one.path("devmem").asInt(0),
                    one.path("type").asString(""),
                    one.path("numa").asInt(-1),
                    one.path("health").asBoolean(true)));
        }
        return gpus;
    }

    private static FormatException expected(String expected, String found) {
        return new FormatException("expected " + expected + ", found " + "\"" + found + "\"");
    }

    private static long allocatableGpus(Node node) {
        var gpus = allocatable(node).get(ForeignResources.NVIDIA_GPU);
        return gpus == null ? 0 : Quantity.parse(gpus.toString()).scaled(0);
    }

    private static Map<String, io.fabric8.kubernetes.api.model.Quantity> allocatable(Node node) {
        return node.getStatus() == null || node.getStatus().getAllocatable() == null
                ? Map.of()
                : node.getStatus().getAllocatable();
    }

    private static Map<String, String> orEmpty(@Nullable Map<String, String> map) {
        return map == null ? Map.of() : map;
    }
}
