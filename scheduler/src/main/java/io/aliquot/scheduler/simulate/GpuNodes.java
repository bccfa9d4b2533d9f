package io.aliquot.scheduler.simulate;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.aliquot.api.Annotations;
import io.aliquot.api.FormatException;
import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.api.Labels;
import io.aliquot.api.Placement;
import io.aliquot.api.Resources;
import io.aliquot.api.Scaling;
import io.aliquot.api.SlotCount;
import io.aliquot.api.VisibleDevices;
import io.aliquot.scheduler.kubernetes.NodeReader;
import io.aliquot.scheduler.kubernetes.client.Quantities;
import io.aliquot.scheduler.ledger.NodeFacts.LeftOut;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.placement.HostResources;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.Quantity;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * Reads the GPUs of a node: of one that runs Aliquot as the scheduler does, of others from what the products there tell.
 *
 * <p>NVIDIA's GPU feature discovery: labels {@code nvidia.com/gpu.product}, {@code .memory} (MiB), {@code .count}
 * (github.com/NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery). HAMi: the annotation {@value #HAMI}, either
 * {@code uuid,slots,MiB,cores,type,numa,healthy:…} (github.com/Project-HAMi/HAMi, docs/develop/protocol.md) or, in later
 * versions, a JSON array. ACK: labels {@code aliyun.accelerator/nvidia_name}, {@code _mem}, {@code _count}.
 */
final class GpuNodes {
    static final String HAMI = "hami.io/node-nvidia-register";
    private static final String PRODUCT = "nvidia.com/gpu.product";
    private static final String MEMORY = "nvidia.com/gpu.memory";
    private static final String COUNT = "nvidia.com/gpu.count";
    private static final String REPLICAS = "nvidia.com/gpu.replicas";
    private static final String ACK_NAME = "aliyun.accelerator/nvidia_name";
    private static final String ACK_MEMORY = "aliyun.accelerator/nvidia_mem";
    private static final String ACK_COUNT = "aliyun.accelerator/nvidia_count";
    private static final Pattern MIB = Pattern.compile("([0-9]{1,8})( ?Mi[Bb]?)?");
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final VisibleDevices BY_UUID = new VisibleDevices("{uuid}");

    private final NodeReader ours = new NodeReader(Placement.BINPACK);

    /** What is known of a node's GPUs. */
    sealed interface Reading {
        /**
         * It can take part.
         *
         * @param hami whether it tells of them by HAMi's annotation
         * @param sliced whether each is several to its device plugin
         */
        record Known(Node node, boolean hami, boolean sliced) implements Reading {}

        /** It has none. */
        record None() implements Reading {}

        /** It has some that can't be simulated. */
        record Unknown(String why) implements Reading {}
    }

    Reading read(io.fabric8.kubernetes.api.model.Node node) {
        if (node.getSpec() != null && Boolean.TRUE.equals(node.getSpec().getUnschedulable())) {
            return new Reading.Unknown("cordoned");
        }
        Map<String, String> labels = orEmpty(node.getMetadata().getLabels());
        Map<String, String> annotations = orEmpty(node.getMetadata().getAnnotations());
        try {
            if (annotations.containsKey(Annotations.GPUS)) {
                return ours(node, false, false);
            }
            if (annotations.containsKey(HAMI)) {
                return hami(node, annotations.getOrDefault(HAMI, ""));
            }
            if (labels.containsKey(PRODUCT)) {
                return labelled(node, labels, PRODUCT, MEMORY, COUNT);
            }
            if (labels.containsKey(ACK_NAME)) {
                return labelled(node, labels, ACK_NAME, ACK_MEMORY, ACK_COUNT);
            }
        } catch (FormatException e) {
            return new Reading.Unknown(String.valueOf(e.getMessage()));
        }
        return allocatableGpus(node) == 0
                ? new Reading.None()
                : new Reading.Unknown("nothing tells the model and memory of its GPUs; expected the annotation "
                        + Annotations.GPUS + " or " + HAMI + ", or the label " + PRODUCT);
    }

    private Reading ours(io.fabric8.kubernetes.api.model.Node node, boolean hami, boolean sliced) {
        NodeReader.Reading reading = ours.read(node);
        if (reading.facts() instanceof Sharing sharing) {
            return new Reading.Known(new Node(node.getMetadata().getName(), sharing, HostResources.NONE), hami, sliced);
        }
        return new Reading.Unknown(
                reading.problem().isEmpty() ? ((LeftOut) reading.facts()).reason() : reading.problem());
    }

    /** The node, had Aliquot's agent told of its GPUs and its admin let it take part. Its other settings count. */
    private static io.fabric8.kubernetes.api.model.Node with(
            Inventory inventory, io.fabric8.kubernetes.api.model.Node node) {
        return new NodeBuilder(node)
                .editMetadata()
                .addToLabels(Labels.GPU, Labels.GPU_ON)
                .addToAnnotations(Annotations.GPUS, inventory.print())
                .endMetadata()
                .build();
    }

    private Reading labelled(
            io.fabric8.kubernetes.api.model.Node node,
            Map<String, String> labels,
            String product,
            String memory,
            String count) {
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
        var made = new Node.Gpus((int) gpus, name(model), (int) number(memory, mebibytes.group(1)), SlotCount.DEFAULT);
        return ours(
                with(Node.gpus(node.getMetadata().getName(), made), node),
                false,
                model.endsWith("-SHARED") || !labels.getOrDefault(REPLICAS, "1").matches("[01]?"));
    }

    private static long number(String where, String text) {
        if (!text.matches("[0-9]{1,7}")) {
            throw expected("a whole number as " + where, text);
        }
        return Long.parseLong(text);
    }

    /** In a label's value there are hyphens for a name's spaces. */
    private static String name(String product) {
        String name =
                product.endsWith("-SHARED") ? product.substring(0, product.length() - "-SHARED".length()) : product;
        return name.startsWith("NVIDIA-") ? "NVIDIA " + name.substring("NVIDIA-".length()) : name;
    }

    private Reading hami(io.fabric8.kubernetes.api.model.Node node, String text) {
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
                    one.healthy,
                    Gpu.SHIM,
                    Map.of()));
            slots = Math.max(slots, one.slots);
        }
        if (gpus.isEmpty()) {
            return new Reading.None();
        }
        var inventory = new Inventory(BY_UUID, Scaling.ONE, Scaling.ONE, Math.min(slots, SlotCount.MOST), gpus);
        return ours(with(inventory, node), true, false);
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
        } catch (JsonProcessingException e) {
            throw new FormatException(HAMI + ": " + e.getOriginalMessage(), e);
        }
        var gpus = new ArrayList<Registered>();
        for (JsonNode one : array) {
            gpus.add(new Registered(
                    one.path("id").asText(),
                    one.path("count").asInt(1),
                    one.path("devmem").asInt(),
                    one.path("type").asText(),
                    one.path("numa").asInt(-1),
                    one.path("health").asBoolean(true)));
        }
        return gpus;
    }

    private static FormatException expected(String expected, String found) {
        return new FormatException("expected " + expected + ", found " + "\"" + found + "\"");
    }

    private static long allocatableGpus(io.fabric8.kubernetes.api.model.Node node) {
        return Quantities.whole(amounts(node).get(Resources.GPU));
    }

    private static Map<String, Quantity> amounts(io.fabric8.kubernetes.api.model.Node node) {
        return node.getStatus() == null || node.getStatus().getAllocatable() == null
                ? Map.of()
                : node.getStatus().getAllocatable();
    }

    private static Map<String, String> orEmpty(@Nullable Map<String, String> map) {
        return map == null ? Map.of() : map;
    }
}
