package io.aliquot.api.foreign;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.Quantity;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.PodDefaults;
import io.aliquot.api.pods.Priority;
import java.math.BigDecimal;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * Translates resources of other products into Aliquot's. The webhook does so when a pod is created.
 *
 * <p>NVIDIA's device plugin: {@code nvidia.com/gpu} is a number of GPUs. Its amount moves to {@link Resources#VGPU}, and
 * the name stays with the amount 0, for two reasons. Kubernetes' LimitRanger runs again after webhooks and adds a
 * namespace's default where a container lacks the name (plugin/pkg/admission/limitranger/admission.go,
 * defaultContainerResourceRequirements). The GPU Operator evicts the pods of a node before it replaces the driver, and
 * finds them by a resource that begins with {@value #DRIVER_MANAGER_PREFIX} (github.com/NVIDIA/k8s-driver-manager).
 *
 * <p>A time slice of NVIDIA's device plugin, {@code nvidia.com/gpu.shared} or, where {@link PodDefaults} say so,
 * {@code nvidia.com/gpu}, is a vGPU of the size that the defaults give it.
 *
 * <p>ACK: {@code aliyun.com/gpu-mem} is the GiB on all of a container's GPUs together; the pod's label
 * {@code aliyun.com/gpu-count} is their number (Alibaba Cloud, Container Service for Kubernetes: Enable multi-GPU
 * sharing; Allocate computing power by scheduling shared GPU). {@code aliyun.com/gpu} is whole GPUs with the best links
 * (Description of labels for GPU-accelerated nodes).
 *
 * <p>HAMi: {@code nvidia.com/priority} (github.com/Project-HAMi/HAMi, examples/nvidia/example.yaml).
 */
public final class ForeignResources {
    /** GPUs of NVIDIA's device plugin; in a translated container with the amount 0. */
    public static final String NVIDIA_GPU = "nvidia.com/gpu";
    /** Time slices of NVIDIA's device plugin with {@code renameByDefault}; each on another GPU. */
    public static final String NVIDIA_GPU_SHARED = "nvidia.com/gpu.shared";
    /** GiB of device memory. */
    public static final String ACK_MEMORY = "aliyun.com/gpu-mem";
    /** Compute, in percent of one GPU. */
    public static final String ACK_CORES = "aliyun.com/gpu-core.percentage";
    /** Whole GPUs. */
    public static final String ACK_GPU = "aliyun.com/gpu";
    /** Label of the pod: the number of GPUs that {@link #ACK_MEMORY} is divided over. */
    public static final String ACK_GPU_COUNT_LABEL = "aliyun.com/gpu-count";
    /** HAMi's priority, which is not an amount; Aliquot's is an annotation. */
    public static final String PRIORITY = "nvidia.com/priority";

    /** All resources that are translated. */
    public static final List<String> NAMES =
            List.of(NVIDIA_GPU, NVIDIA_GPU_SHARED, PRIORITY, ACK_GPU, ACK_MEMORY, ACK_CORES);

    private static final String DRIVER_MANAGER_PREFIX = "nvidia.com/gpu";
    private static final String NONE = "0";

    private static final List<String> ACK = List.of(ACK_GPU, ACK_MEMORY, ACK_CORES);
    private static final List<String> OTHER_PLUGINS = List.of("nvidia.com/gpu", "nvidia.com/mig-", "aliyun.com/gpu");
    private static final int MIB_PER_GIB = 1024;
    private static final int ALL_CORES = 100;

    private ForeignResources() {}

    /**
     * Whether another device plugin serves GPUs or parts of them under this name: NVIDIA's and HAMi's
     * {@code nvidia.com/gpu}, {@code nvidia.com/gpu.shared} and {@code nvidia.com/mig-…}, and ACK's.
     */
    public static boolean servedByOtherPlugins(String resource) {
        return !Resources.SUPPORTED.contains(resource) && OTHER_PLUGINS.stream().anyMatch(resource::startsWith);
    }

    /** Whether a container names a resource of ACK, which has the same meaning with every {@link Compatibility}. */
    public static boolean usesAckResources(Map<String, String> limits) {
        return ACK.stream().anyMatch(limits::containsKey);
    }

    /** Whether a container requests GPUs with the best links, as ACK's resource {@value #ACK_GPU} does. */
    public static boolean requestsBestLinks(Map<String, String> limits) {
        return limits.containsKey(ACK_GPU);
    }

    /** Whether the meaning of a container's limits depends on {@link PodDefaults}. */
    public static boolean dependsOnDefaults(Map<String, String> limits) {
        return !statesSize(limits)
                && !limits.containsKey(Resources.VGPU)
                && Stream.of(NVIDIA_GPU, NVIDIA_GPU_SHARED).anyMatch(name -> requests(limits, name));
    }

    /**
     * The limits as their author wrote them, of limits into which an update has merged what the author wrote and what
     * {@link #toAliquot} has made of it at the pod's creation. A container that names another product's resource did
     * not name those that only the translation adds, or it would have been refused.
     */
    public static Map<String, String> asWritten(Map<String, String> merged) {
        var written = new LinkedHashMap<>(merged);
        if (usesAckResources(merged)) {
            // What is there with 0 was there at the creation, too.
            written.keySet().removeIf(name -> Resources.SUPPORTED.contains(name) && requests(merged, name));
        } else if (Stream.of(NVIDIA_GPU, NVIDIA_GPU_SHARED).anyMatch(name -> requests(merged, name))) {
            written.remove(Resources.VGPU);
        } else if (merged.keySet().stream()
                .anyMatch(name -> name.startsWith(Resources.NVIDIA_INSTANCE_PREFIX) && requests(merged, name))) {
            written.remove(Resources.VGPU);
            written.keySet().removeIf(name -> name.startsWith(Resources.INSTANCE_GROUP));
        }
        return written;
    }

    /**
     * A container's limits with Aliquot's resources in place of other products'. Other resources stay.
     *
     * @param limits resource name to quantity
     * @param labels the pod's
     * @param compatibility the product whose meaning {@code nvidia.com} resources have
     * @param defaults with the size of slices
     * @throws FormatException if an amount is invalid, with what to write instead
     */
    public static Map<String, String> toAliquot(
            Map<String, String> limits, Map<String, String> labels, Compatibility compatibility, PodDefaults defaults) {
        checkInstances(limits);
        var translated = new LinkedHashMap<>(limits);
        translated.remove(PRIORITY);
        if (usesAckResources(limits)) {
            translateAck(translated, labels);
        }
        translateInstances(translated);
        translateNvidia(translated, defaults);
        if (compatibility == Compatibility.HAMI) {
            normalizeHami(translated);
        }
        return translated;
    }

    /**
     * What {@link #PRIORITY} means in HAMi; empty if the container does not name it.
     *
     * @throws FormatException if the amount is neither 0 nor 1
     */
    public static Optional<Priority> priority(Map<String, String> limits) {
        return Optional.ofNullable(limits.get(PRIORITY))
                .map(text -> Quantity.whole(PRIORITY, text, 0, 1, "0 for high, 1 for low") == 0
                        ? Priority.HIGH
                        : Priority.LOW);
    }

    /**
     * Checks that a container of an admitted pod requests no resource that admission translates.
     *
     * @throws FormatException if it does: the webhook was not called for the pod
     */
    public static void requireTranslated(Map<String, String> limits) {
        limits.forEach((name, amount) -> {
            if (NAMES.contains(name) && !(name.equals(NVIDIA_GPU) && isZero(amount))) {
                throw new FormatException(name + " is translated only when a pod is created, and only if Aliquot's"
                        + " webhook is called; write " + String.join(", ", Resources.SUPPORTED));
            }
        });
    }

    /** A container that asks for instances of MIG asks for nothing beside them but for as many vGPUs. */
    private static void checkInstances(Map<String, String> limits) {
        List<String> instances = limits.keySet().stream()
                .filter(name -> isInstance(name) && requests(limits, name))
                .sorted()
                .toList();
        if (instances.isEmpty()) {
            return;
        }
        String named = instances.getFirst();
        if (instances.size() > 1) {
            throw new FormatException("write either " + named + " or " + instances.get(1)
                    + ", not both: a container gets MIG instances of one profile");
        }
        String count = limits.get(named);
        if (requests(limits, Resources.VGPU) && !Objects.equals(limits.get(Resources.VGPU), count)) {
            throw new FormatException(
                    "remove " + Resources.VGPU + ": each of " + named + ": " + count + " is one vGPU already");
        }
        Stream.of(Resources.SUPPORTED, NAMES)
                .flatMap(List::stream)
                .filter(name -> !name.equals(Resources.VGPU) && !name.equals(PRIORITY) && requests(limits, name))
                .findFirst()
                .ifPresent(name -> {
                    throw new FormatException("write either " + named + " or " + name
                            + ", not both: an instance of MIG is always whole, and one vGPU");
                });
    }

    /** Whether a container requests whole instances of MIG by this name, Aliquot's or NVIDIA's. */
    public static boolean isInstance(String resource) {
        return resource.startsWith(Resources.INSTANCE_GROUP) || resource.startsWith(Resources.NVIDIA_INSTANCE_PREFIX);
    }

    /** A default that admission has set to 0 stays, so that LimitRanger does not add it again. */
    private static void translateInstances(Map<String, String> translated) {
        for (String name : List.copyOf(translated.keySet())) {
            if (name.startsWith(Resources.NVIDIA_INSTANCE_PREFIX) && requests(translated, name)) {
                String profile = name.substring(Resources.NVIDIA_INSTANCE_PREFIX.length());
                String amount = translated.remove(name);
                // Aliquot's name may stand beside it with 0, or the other way round.
                translated.merge(Resources.INSTANCE_GROUP + profile, amount, (own, other) -> isZero(own) ? other : own);
            }
        }
    }

    private static void translateNvidia(Map<String, String> translated, PodDefaults defaults) {
        String slices = translated.remove(NVIDIA_GPU_SHARED);
        String gpus = translated.get(NVIDIA_GPU);
        boolean done = translated.containsKey(Resources.VGPU);
        if (slices != null && !(isZero(slices) && (done || gpus != null))) {
            if (done || requests(translated, NVIDIA_GPU)) {
                throw new FormatException("write either " + NVIDIA_GPU_SHARED + " or "
                        + (done ? Resources.VGPU : NVIDIA_GPU) + ", not both");
            }
            addSlices(translated, NVIDIA_GPU_SHARED, slices, defaults);
            done = true;
        }
        if (gpus != null && done && !isZero(gpus)) {
            throw new FormatException("write either " + NVIDIA_GPU + " or " + Resources.VGPU
                    + ", not both; the former may be the default of a LimitRange in the namespace");
        }
        if (gpus != null && !done) {
            if (defaults.gpu() == PodDefaults.Meaning.SLICE) {
                addSlices(translated, NVIDIA_GPU, gpus, defaults);
            } else {
                translated.put(
                        Resources.VGPU, text(Quantity.whole(NVIDIA_GPU, gpus, 0, GpuRequest.MOST_VGPUS, "vGPUs")));
            }
            translated.put(NVIDIA_GPU, NONE);
        }
        if (translated.containsKey(Resources.VGPU)
                && translated.keySet().stream().noneMatch(name -> name.startsWith(DRIVER_MANAGER_PREFIX))) {
            translated.put(NVIDIA_GPU, NONE);
        }
    }

    private static void addSlices(Map<String, String> translated, String name, String amount, PodDefaults defaults) {
        int slices = Quantity.whole(name, amount, 0, GpuRequest.MOST_VGPUS, "slices");
        translated.put(Resources.VGPU, text(slices));
        if (slices > 0 && !statesSize(translated)) {
            try {
                translated.putAll(defaults.amounts());
            } catch (FormatException e) {
                throw new FormatException(name + ": " + e.getMessage(), e);
            }
        }
    }

    private static boolean statesSize(Map<String, String> limits) {
        return limits.containsKey(Resources.MEMORY)
                || limits.containsKey(Resources.MEMORY_PERCENTAGE)
                || requests(limits, Resources.CORES);
    }

    private static boolean requests(Map<String, String> limits, String name) {
        String amount = limits.get(name);
        return amount != null && !isZero(amount);
    }

    private static boolean isZero(String amount) {
        return amount.equals(NONE);
    }

    private static void translateAck(Map<String, String> translated, Map<String, String> labels) {
        String gpus = translated.remove(ACK_GPU);
        String memory = translated.remove(ACK_MEMORY);
        String cores = translated.remove(ACK_CORES);
        String named = gpus != null ? ACK_GPU : memory != null ? ACK_MEMORY : ACK_CORES;
        for (String name : Stream.concat(Stream.of(NVIDIA_GPU, NVIDIA_GPU_SHARED), Resources.SUPPORTED.stream())
                .toList()) {
            if (requests(translated, name)) {
                throw new FormatException("write either " + named + " or " + name + ", not both");
            }
        }
        if (gpus != null) {
            if (memory != null || cores != null) {
                throw new FormatException(
                        ACK_GPU + " requests whole GPUs: remove it, or " + (memory != null ? ACK_MEMORY : ACK_CORES));
            }
            translated.put(Resources.VGPU, text(Quantity.whole(ACK_GPU, gpus, 0, GpuRequest.MOST_VGPUS, "GPUs")));
            return;
        }
        if (memory == null) {
            throw new FormatException("add " + ACK_MEMORY + ", the memory: " + ACK_CORES + " alone is not enough");
        }
        int count = gpuCount(labels.get(ACK_GPU_COUNT_LABEL));
        int gibibytes = Quantity.whole(ACK_MEMORY, memory, 1, Gpu.LARGEST_MIB / MIB_PER_GIB, "GiB");
        if (gibibytes % count != 0) {
            throw new FormatException(ACK_MEMORY + ": " + gibibytes + " GiB cannot be divided equally over " + count
                    + " GPUs (label " + ACK_GPU_COUNT_LABEL + "); write a multiple of " + count);
        }
        translated.put(Resources.VGPU, text(count));
        translated.put(Resources.MEMORY, text(gibibytes / count * MIB_PER_GIB));
        if (cores != null) {
            translated.put(Resources.CORES, text(Quantity.whole(ACK_CORES, cores, 0, ALL_CORES, "percent of one GPU")));
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
     * Reads amounts as HAMi does where Aliquot refuses them: more than 100 cores become 100
     * (pkg/device/nvidia/fit_checks.go, normalizeCoresreq), memory of 0 counts as not requested, and MiB take
     * precedence over a percentage (device.go, GenerateResourceRequests, and fit_checks.go, computeMemreq).
     */
    private static void normalizeHami(Map<String, String> translated) {
        String cores = translated.get(Resources.CORES);
        if (cores != null && atLeast(Resources.CORES, cores, ALL_CORES + 1)) {
            translated.put(Resources.CORES, text(ALL_CORES));
        }
        String memory = translated.get(Resources.MEMORY);
        if (memory != null) {
            if (atLeast(Resources.MEMORY, memory, 1)) {
                translated.remove(Resources.MEMORY_PERCENTAGE);
            } else {
                translated.remove(Resources.MEMORY);
            }
        }
    }

    private static boolean atLeast(String name, String text, int amount) {
        return Quantity.parse(name, text).value().compareTo(BigDecimal.valueOf(amount)) >= 0;
    }

    private static String text(int amount) {
        return Integer.toString(amount);
    }
}
