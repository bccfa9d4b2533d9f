package io.aliquot.api;

import java.math.BigDecimal;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * What one container asks for: so many vGPUs, each on a GPU of its own, each with this memory and compute.
 *
 * @param vgpus 1 to {@value #MOST_VGPUS}
 * @param memory of each vGPU
 * @param cores of each vGPU, in percent of its GPU, 0 to 100; 0 neither limits nor reserves
 * @param exclusive whether nobody else may share the cards; by our own names, where neither memory nor cores are asked
 */
public record GpuRequest(int vgpus, MemoryRequest memory, int cores, boolean exclusive) {
    /** More than any node has GPUs for; keeps sums far from overflow. */
    public static final int MOST_VGPUS = 1024;

    private static final int ALL_CORES = 100;

    /**
     * Reads a container's limits (of extended resources the API server wants requests equal to limits).
     *
     * @param limits resource name to quantity, as written or as the API server canonicalised it; other resources are
     *     passed over
     * @return empty where the container asks for no GPU
     * @throws FormatException where an amount makes no sense, with what to write instead
     */
    public static Optional<GpuRequest> parse(Map<String, String> limits) {
        for (String name : ForeignResources.NAMES) {
            if (limits.containsKey(name)) {
                throw new FormatException(name + " is understood only when a pod is created, and only where Aliquot's"
                        + " webhook is called; write " + String.join(", ", Resources.SUPPORTED));
            }
        }
        String memory = limits.get(Resources.MEMORY);
        String percentage = limits.get(Resources.MEMORY_PERCENTAGE);
        int cores = limits.containsKey(Resources.CORES)
                ? amount(Resources.CORES, limits.get(Resources.CORES), 0, ALL_CORES, "percent of one GPU")
                : 0;
        int vgpus = limits.containsKey(Resources.GPU)
                ? amount(Resources.GPU, limits.get(Resources.GPU), 0, MOST_VGPUS, "vGPUs")
                : -1;
        boolean asksElse = memory != null || percentage != null || cores > 0;
        if (vgpus <= 0 && !asksElse) {
            return Optional.empty();
        }
        if (vgpus == 0) {
            throw new FormatException(Resources.GPU + ": 0 vGPUs cannot have memory or cores; write " + Resources.GPU
                    + ": 1, or ask for nothing");
        }
        if (memory != null && percentage != null) {
            throw new FormatException("write either " + Resources.MEMORY + " or " + Resources.MEMORY_PERCENTAGE
                    + ", not both: each says how much memory a vGPU gets");
        }
        return Optional.of(new GpuRequest(Math.max(vgpus, 1), memory(memory, percentage), cores, !asksElse));
    }

    /**
     * The same by another's meaning. In HAMi all cores are the whole GPU (github.com/Project-HAMi/HAMi,
     * pkg/device/nvidia/fit_checks.go, checkCardExclusive), and all memory without a word on cores is all cores
     * (device.go, defaultExclusiveCoreIfNeeded).
     */
    public GpuRequest as(Compatibility compatibility) {
        boolean allMemory = memory instanceof MemoryRequest.Percentage percentage && percentage.percent() == 100;
        boolean whole = cores == ALL_CORES || (cores == 0 && allMemory);
        return compatibility == Compatibility.HAMI && whole && !exclusive
                ? new GpuRequest(vgpus, memory, ALL_CORES, true)
                : this;
    }

    private static MemoryRequest memory(@Nullable String memory, @Nullable String percentage) {
        if (memory != null) {
            return new MemoryRequest.Mebibytes(amount(Resources.MEMORY, memory, 1, Vgpu.LARGEST_MIB, "MiB"));
        }
        if (percentage != null) {
            return new MemoryRequest.Percentage(
                    amount(Resources.MEMORY_PERCENTAGE, percentage, 1, 100, "percent of a card's memory"));
        }
        return new MemoryRequest.WholeCard();
    }

    private static int amount(String name, String text, int least, int most, String unit) {
        Quantity quantity;
        try {
            quantity = Quantity.parse(text);
        } catch (FormatException e) {
            throw new FormatException(name + ": " + e.getMessage(), e);
        }
        BigDecimal value = quantity.value();
        if (name.equals(Resources.MEMORY) && quantity.binary()) {
            BigDecimal mebibytes = value.divide(BigDecimal.valueOf(1 << 20));
            boolean whole = new Quantity(mebibytes, false).whole() && mebibytes.signum() > 0;
            throw new FormatException(name + " counts MiB: write "
                    + (whole ? mebibytes.toBigInteger() : "a whole number") + " instead of " + text);
        }
        if (!quantity.whole()
                || value.compareTo(BigDecimal.valueOf(least)) < 0
                || value.compareTo(BigDecimal.valueOf(most)) > 0) {
            throw new FormatException(name + ": write a whole number from " + least + " to " + most + " (" + unit
                    + ") instead of " + text);
        }
        return value.intValueExact();
    }
}
