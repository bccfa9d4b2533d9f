package io.aliquot.api.pods;

import static io.aliquot.api.format.FormatException.expect;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.Quantity;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.Gpu;
import java.math.BigDecimal;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * The vGPUs that one container requests: all of the same size, each on another physical GPU of one node.
 *
 * @param vgpus 1 to {@value #MOST_VGPUS}
 * @param memory of each vGPU
 * @param cores of each vGPU, in percent of one GPU, 0 to 100; 0: neither limited nor reserved
 * @param exclusive whether it requests whole GPUs; by Aliquot's names, if it requests neither memory nor cores
 * @param profile of the MIG instances that it requests, such as {@code 1g.10gb.me}; empty: it names none
 */
public record GpuRequest(int vgpus, MemoryRequest memory, int cores, boolean exclusive, String profile) {
    /** More than a node has GPUs; keeps sums far from overflow. */
    public static final int MOST_VGPUS = 1024;

    private static final int ALL_CORES = 100;

    /** A request that names no profile. */
    public GpuRequest(int vgpus, MemoryRequest memory, int cores, boolean exclusive) {
        this(vgpus, memory, cores, exclusive, "");
    }

    public GpuRequest {
        expect(vgpus >= 1 && vgpus <= MOST_VGPUS, "vGPUs from 1 to " + MOST_VGPUS, vgpus);
        expect(cores >= 0 && cores <= ALL_CORES, "cores from 0 to " + ALL_CORES, cores);
    }

    /**
     * Reads a container's limits. Requests need not be read: for extended resources they equal the limits.
     *
     * @param limits resource name to quantity, as written or in the API server's canonical form; other resources, and no
     *     memory, are ignored
     * @return empty if the container requests no GPU
     * @throws FormatException if an amount is invalid, with what to write instead
     */
    public static Optional<GpuRequest> parse(Map<String, String> limits) {
        String memory = notZero(limits, Resources.MEMORY);
        String percentage = notZero(limits, Resources.MEMORY_PERCENTAGE);
        int cores = limits.containsKey(Resources.CORES)
                ? Quantity.whole(Resources.CORES, limits.get(Resources.CORES), 0, ALL_CORES, "percent of one GPU")
                : 0;
        int vgpus = limits.containsKey(Resources.VGPU)
                ? Quantity.whole(Resources.VGPU, limits.get(Resources.VGPU), 0, MOST_VGPUS, "vGPUs")
                : -1;
        boolean hasSize = memory != null || percentage != null || cores > 0;
        Optional<GpuRequest> instances = instances(limits);
        if (instances.isPresent()) {
            if (hasSize) {
                throw new FormatException("an instance of MIG is always whole: remove "
                        + String.join(" and ", List.of(Resources.MEMORY, Resources.MEMORY_PERCENTAGE, Resources.CORES))
                        + " beside it, or the instance");
            }
            if (vgpus >= 0 && vgpus != instances.get().vgpus()) {
                throw new FormatException("remove " + Resources.VGPU + ": each of " + Resources.INSTANCE_GROUP
                        + instances.get().profile() + ": " + instances.get().vgpus() + " is one vGPU already");
            }
            return instances;
        }
        if (vgpus <= 0 && !hasSize) {
            return Optional.empty();
        }
        if (vgpus == 0) {
            throw new FormatException(Resources.VGPU + ": 0 vGPUs cannot have memory or cores; write " + Resources.VGPU
                    + ": 1, or remove the other amounts");
        }
        if (memory != null && percentage != null) {
            throw new FormatException("write either " + Resources.MEMORY + " or " + Resources.MEMORY_PERCENTAGE
                    + ", not both: each says how much memory a vGPU gets");
        }
        return Optional.of(new GpuRequest(Math.max(vgpus, 1), memory(memory, percentage), cores, !hasSize));
    }

    private static Optional<GpuRequest> instances(Map<String, String> limits) {
        Optional<GpuRequest> found = Optional.empty();
        for (Map.Entry<String, String> limit : limits.entrySet()) {
            Optional<String> profile = Resources.instanceProfile(limit.getKey());
            int count = profile.isEmpty()
                    ? 0
                    : Quantity.whole(limit.getKey(), limit.getValue(), 0, MOST_VGPUS, "instances");
            if (count > 0 && found.isPresent()) {
                throw new FormatException(
                        "a container gets instances of one MIG profile: split it, or remove " + limit.getKey());
            }
            if (count > 0) {
                found = Optional.of(
                        new GpuRequest(count, new MemoryRequest.WholeCard(), 0, true, profile.orElseThrow()));
            }
        }
        return found;
    }

    /**
     * The same request with the meaning of the given product. In HAMi all cores are the whole card
     * (github.com/Project-HAMi/HAMi, pkg/device/nvidia/fit_checks.go, checkCardExclusive), and so is all memory without
     * an amount of cores (device.go, defaultExclusiveCoreIfNeeded).
     */
    public GpuRequest as(Compatibility compatibility) {
        boolean allMemory = memory instanceof MemoryRequest.Percentage percentage && percentage.percent() == 100;
        boolean whole = cores == ALL_CORES || (cores == 0 && allMemory);
        return compatibility == Compatibility.HAMI && whole && !exclusive
                ? new GpuRequest(vgpus, memory, ALL_CORES, true)
                : this;
    }

    /** An amount of 0 counts as none: a LimitRange with {@code default: 0} adds it to every container. */
    private static @Nullable String notZero(Map<String, String> limits, String name) {
        String amount = limits.get(name);
        return "0".equals(amount) ? null : amount;
    }

    private static MemoryRequest memory(@Nullable String memory, @Nullable String percentage) {
        if (memory != null) {
            refuseBinary(memory);
            return new MemoryRequest.Mebibytes(Quantity.whole(Resources.MEMORY, memory, 1, Gpu.LARGEST_MIB, "MiB"));
        }
        if (percentage != null) {
            return new MemoryRequest.Percentage(
                    Quantity.whole(Resources.MEMORY_PERCENTAGE, percentage, 1, 100, "percent of a card's memory"));
        }
        return new MemoryRequest.WholeCard();
    }

    private static void refuseBinary(String memory) {
        Quantity quantity = Quantity.parse(Resources.MEMORY, memory);
        if (quantity.binary()) {
            BigDecimal mebibytes = quantity.value().divide(BigDecimal.valueOf(1 << 20));
            boolean whole = new Quantity(mebibytes, false).whole() && mebibytes.signum() > 0;
            throw new FormatException(Resources.MEMORY + " counts MiB: write "
                    + (whole ? mebibytes.toBigInteger() : "a whole number") + " instead of " + memory);
        }
    }
}
