package io.aliquot.api.pods;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.Keywords;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;

/**
 * What a pod gets that does not say it: its core policy, and the size of a slice, which is a vGPU that is requested without
 * an amount of memory or cores. NVIDIA's device plugin advertises time slices as {@code nvidia.com/gpu.shared}, or with
 * {@code renameByDefault: false} as {@code nvidia.com/gpu}, and gives them no size
 * (github.com/NVIDIA/k8s-device-plugin, README, <i>Shared Access to GPUs</i>).
 *
 * @param gpu what {@code nvidia.com/gpu} without amounts requests
 * @param memory of a slice; {@link MemoryRequest.WholeCard} if none is set, and slices are refused
 * @param cores of a slice, in percent of one GPU, 0 to 100; 0: neither limited nor reserved
 * @param corePolicy empty: {@link Compatibility#corePolicy}
 * @param rules what a default must not be
 */
public record PodDefaults(
        Meaning gpu, MemoryRequest memory, int cores, Optional<CorePolicy> corePolicy, CoreRules rules) {
    /** What {@code nvidia.com/gpu} counts where the container states neither memory nor cores. */
    public enum Meaning {
        /** Whole cards. */
        CARD,
        /** Slices. */
        SLICE;

        String print() {
            return this == CARD ? "card" : "slice";
        }
    }

    /** No slice has a size, {@code nvidia.com/gpu} is whole cards, and there is no core policy. */
    public static final PodDefaults NONE =
            new PodDefaults(Meaning.CARD, new MemoryRequest.WholeCard(), 0, Optional.empty(), CoreRules.NONE);

    private static final String GPU = "gpu";
    private static final String MEMORY = "memory";
    private static final String MEMORY_PERCENTAGE = "memory-percentage";
    private static final String CORES = "cores";
    private static final String CORE_POLICY = "core-policy";

    /**
     * These defaults where no value is set, and the values elsewhere. A value of the memory replaces memory and
     * percentage.
     *
     * @param name the name of a value for {@code gpu}, {@code memory}, {@code memory-percentage}, {@code cores},
     *     {@code core-policy} or one of {@link CoreRules}
     * @param values by these names; null or empty: not set
     * @throws FormatException if a value is invalid; the message begins with its name
     */
    public PodDefaults with(UnaryOperator<String> name, Function<String, @Nullable String> values) {
        Function<String, Optional<String>> value =
                key -> Optional.ofNullable(values.apply(name.apply(key))).filter(text -> !text.isEmpty());
        Meaning meaning = value.apply(GPU)
                .map(text -> Keywords.parse(name.apply(GPU), text, List.of(Meaning.values()), Meaning::print))
                .orElse(gpu);
        Optional<String> mebibytes = value.apply(MEMORY);
        Optional<String> percentage = value.apply(MEMORY_PERCENTAGE);
        if (mebibytes.isPresent() && percentage.isPresent()) {
            throw new FormatException(name.apply(MEMORY) + ": remove it, or " + name.apply(MEMORY_PERCENTAGE)
                    + ": each says how much memory a slice has");
        }
        MemoryRequest size = memory;
        if (mebibytes.isPresent()) {
            size = request(name.apply(MEMORY), Resources.MEMORY, mebibytes.get())
                    .memory();
        } else if (percentage.isPresent()) {
            size = request(name.apply(MEMORY_PERCENTAGE), Resources.MEMORY_PERCENTAGE, percentage.get())
                    .memory();
        }
        int compute = value.apply(CORES)
                .map(text -> request(name.apply(CORES), Resources.CORES, text).cores())
                .orElse(cores);
        Optional<CorePolicy> policy = value.apply(CORE_POLICY)
                .map(text -> CorePolicy.parse(name.apply(CORE_POLICY), text))
                .or(() -> corePolicy);
        return new PodDefaults(meaning, size, compute, policy, rules.with(name, values));
    }

    /** These defaults with a namespace's annotations: {@link Annotations#DEFAULT_PREFIX} and the names, and those of its rules. */
    public PodDefaults with(Map<String, String> annotations) {
        return with(
                key -> (key.startsWith("allowed-") || key.startsWith("require-")
                                ? "aliquot.io/"
                                : Annotations.DEFAULT_PREFIX)
                        + key,
                annotations::get);
    }

    /** The core policy of a pod that names none. */
    public CorePolicy corePolicyOr(CorePolicy otherwise) {
        return rules.orAllowed(corePolicy.orElse(otherwise));
    }

    /**
     * The amounts of a slice by resource name.
     *
     * @throws FormatException if a slice has no size
     */
    public Map<String, String> amounts() {
        var amounts = new HashMap<String, String>();
        switch (memory) {
            case MemoryRequest.Mebibytes mebibytes ->
                amounts.put(Resources.MEMORY, Integer.toString(mebibytes.amount()));
            case MemoryRequest.Percentage percentage ->
                amounts.put(Resources.MEMORY_PERCENTAGE, Integer.toString(percentage.percent()));
            case MemoryRequest.WholeCard none ->
                throw new FormatException("write " + Resources.MEMORY + " beside it, or ask an administrator for the"
                        + " namespace's annotation " + Annotations.DEFAULT_PREFIX + MEMORY
                        + ": no size of a slice is set");
        }
        if (cores > 0) {
            amounts.put(Resources.CORES, Integer.toString(cores));
        }
        return amounts;
    }

    private static GpuRequest request(String name, String resource, String text) {
        try {
            // One vGPU, so that 0 cores are a request too.
            return GpuRequest.parse(Map.of(Resources.VGPU, "1", resource, text)).orElseThrow();
        } catch (FormatException e) {
            throw new FormatException(name + ": " + e.getMessage(), e);
        }
    }
}
