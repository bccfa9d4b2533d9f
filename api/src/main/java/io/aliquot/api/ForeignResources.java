package io.aliquot.api;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import org.jspecify.annotations.Nullable;

/**
 * Resources of other products that a pod's container may name at its creation, and what they are in ours.
 *
 * <p>ACK: {@code aliyun.com/gpu-mem} is GiB on all of a container's GPUs together, as many GPUs as the pod's label
 * {@code aliyun.com/gpu-count} says (Alibaba Cloud, Container Service for Kubernetes: Enable multi-GPU sharing; Allocate
 * computing power by scheduling shared GPU), and {@code aliyun.com/gpu} is whole GPUs that are well linked (Description
 * of labels for GPU-accelerated nodes).
 *
 * <p>HAMi: {@code nvidia.com/priority} (github.com/Project-HAMi/HAMi, examples/nvidia/example.yaml).
 */
public final class ForeignResources {
    /** GiB of device memory. */
    public static final String ACK_MEMORY = "aliyun.com/gpu-mem";
    /** Compute, in percent of one GPU. */
    public static final String ACK_CORES = "aliyun.com/gpu-core.percentage";
    /** Whole GPUs. */
    public static final String ACK_GPU = "aliyun.com/gpu";
    /** On the pod: how many GPUs {@link #ACK_MEMORY} is on. */
    public static final String ACK_GPU_COUNT_LABEL = "aliyun.com/gpu-count";
    /** Not an amount of anything; ours is an annotation. */
    public static final String PRIORITY = "nvidia.com/priority";

    /** All of them. */
    public static final List<String> NAMES = List.of(PRIORITY, ACK_GPU, ACK_MEMORY, ACK_CORES);

    private static final List<String> ACK = List.of(ACK_GPU, ACK_MEMORY, ACK_CORES);
    private static final int MIB_PER_GIB = 1024;
    private static final int ALL_CORES = 100;

    private ForeignResources() {}

    /** Whether a container names any of ACK's, which have one meaning. */
    public static boolean inAcksNames(Map<String, String> limits) {
        return ACK.stream().anyMatch(limits::containsKey);
    }

    /** Whether a container wants its GPUs linked well, which in ACK is said by the resource's name. */
    public static boolean wantsLinks(Map<String, String> limits) {
        return limits.containsKey(ACK_GPU);
    }

    /**
     * A container's limits in our names; resources that concern nobody here stay.
     *
     * @param labels the pod's
     * @throws FormatException where they make no sense, with what to write instead
     */
    public static Map<String, String> asOurs(
            Map<String, String> limits, Map<String, String> labels, Compatibility compatibility) {
        var ours = new LinkedHashMap<>(limits);
        ours.remove(PRIORITY);
        if (inAcksNames(limits)) {
            convertAck(ours, labels);
        }
        if (compatibility == Compatibility.HAMI) {
            convertHami(ours);
        }
        return ours;
    }

    /**
     * What {@link #PRIORITY} is as our {@link Priority}.
     *
     * @throws FormatException where it is none
     */
    public static OptionalInt priority(Map<String, String> limits, Compatibility compatibility) {
        String text = limits.get(PRIORITY);
        if (text == null) {
            return OptionalInt.empty();
        }
        if (compatibility == Compatibility.HAMI) {
            return OptionalInt.of(1 - whole(PRIORITY, text, 0, 1, "0 for high, 1 for low"));
        }
        return OptionalInt.of(whole(PRIORITY, text, Priority.LOWEST, Priority.HIGHEST, "higher goes first"));
    }

    private static void convertAck(Map<String, String> ours, Map<String, String> labels) {
        String gpus = ours.remove(ACK_GPU);
        String memory = ours.remove(ACK_MEMORY);
        String cores = ours.remove(ACK_CORES);
        String named = gpus != null ? ACK_GPU : memory != null ? ACK_MEMORY : ACK_CORES;
        for (String name : Resources.SUPPORTED) {
            if (ours.containsKey(name)) {
                throw new FormatException("write either " + named + " or " + name + ", not both");
            }
        }
        if (gpus != null) {
            if (memory != null || cores != null) {
                throw new FormatException(
                        ACK_GPU + " asks for whole GPUs: remove it, or " + (memory != null ? ACK_MEMORY : ACK_CORES));
            }
            ours.put(Resources.GPU, text(whole(ACK_GPU, gpus, 0, GpuRequest.MOST_VGPUS, "GPUs")));
            return;
        }
        if (memory == null) {
            throw new FormatException("write " + ACK_MEMORY + " beside " + ACK_CORES);
        }
        int count = gpuCount(labels.get(ACK_GPU_COUNT_LABEL));
        int gibibytes = whole(ACK_MEMORY, memory, 1, Vgpu.LARGEST_MIB / MIB_PER_GIB, "GiB");
        if (gibibytes % count != 0) {
            throw new FormatException(ACK_MEMORY + ": " + gibibytes + " GiB can't be on " + count
                    + " GPUs equally (label " + ACK_GPU_COUNT_LABEL + "); write a multiple of " + count);
        }
        ours.put(Resources.GPU, text(count));
        ours.put(Resources.MEMORY, text(gibibytes / count * MIB_PER_GIB));
        if (cores != null) {
            ours.put(Resources.CORES, text(whole(ACK_CORES, cores, 0, ALL_CORES, "percent of one GPU")));
        }
    }

    private static int gpuCount(@Nullable String label) {
        if (label == null) {
            return 1;
        }
        if (label.matches("[1-9][0-9]{0,3}") && Integer.parseInt(label) <= GpuRequest.MOST_VGPUS) {
            return Integer.parseInt(label);
        }
        throw new FormatException("label " + ACK_GPU_COUNT_LABEL + ": " + FormatException.quote(label)
                + " is not a number of GPUs from 1 to " + GpuRequest.MOST_VGPUS);
    }

    /**
     * What HAMi makes of amounts that we refuse: more cores than there are become all (pkg/device/nvidia/fit_checks.go,
     * normalizeCoresreq), memory of 0 is none asked, and MiB go before a percentage (device.go, GenerateResourceRequests,
     * and fit_checks.go, computeMemreq).
     */
    private static void convertHami(Map<String, String> ours) {
        String cores = ours.get(Resources.CORES);
        if (cores != null && atLeast(Resources.CORES, cores, ALL_CORES + 1)) {
            ours.put(Resources.CORES, text(ALL_CORES));
        }
        String memory = ours.get(Resources.MEMORY);
        if (memory != null) {
            if (atLeast(Resources.MEMORY, memory, 1)) {
                ours.remove(Resources.MEMORY_PERCENTAGE);
            } else {
                ours.remove(Resources.MEMORY);
            }
        }
    }

    private static boolean atLeast(String name, String text, int amount) {
        return quantity(name, text).value().compareTo(BigDecimal.valueOf(amount)) >= 0;
    }

    private static int whole(String name, String text, int least, int most, String unit) {
        Quantity quantity = quantity(name, text);
        BigInteger value = quantity.value().toBigInteger();
        if (!quantity.whole()
                || value.compareTo(BigInteger.valueOf(least)) < 0
                || value.compareTo(BigInteger.valueOf(most)) > 0) {
            throw new FormatException(name + ": write a whole number from " + least + " to " + most + " (" + unit
                    + ") instead of " + text);
        }
        return value.intValueExact();
    }

    private static Quantity quantity(String name, String text) {
        try {
            return Quantity.parse(text);
        } catch (FormatException e) {
            throw new FormatException(name + ": " + e.getMessage(), e);
        }
    }

    private static String text(int amount) {
        return Integer.toString(amount);
    }
}
