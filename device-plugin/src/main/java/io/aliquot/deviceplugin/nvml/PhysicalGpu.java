package io.aliquot.deviceplugin.nvml;

import io.aliquot.api.nodes.GpuKind;
import io.aliquot.api.nodes.Link;
import java.util.Map;

/**
 * One GPU or MIG instance as NVML describes it. The inventory's {@code Gpu} checks the ranges.
 *
 * @param uuid as NVML prints it
 * @param index NVML's, from 0; of an instance {@link Nvml#INSTANCES_FROM} plus 10 for each card before its own, plus its
 *     number on the card
 * @param model product name
 * @param memoryMiB device memory without what the driver reserves for itself; 0 of a card whose properties NVML has never
 *     told since it was opened, whose condition says why
 * @param leastContextMiB what a CUDA context takes of it at least; 0 if the architecture is not known
 * @param numa the NUMA node that the GPU is attached to; -1 if unknown
 * @param kind whether it is a card or an instance
 * @param links by the other GPU's UUID; absent if unknown
 */
public record PhysicalGpu(
        String uuid,
        int index,
        String model,
        int memoryMiB,
        int leastContextMiB,
        int numa,
        GpuCondition condition,
        Map<String, Link> links,
        GpuKind kind) {
    public PhysicalGpu {
        if (uuid.isBlank() || index < 0) {
            throw new IllegalArgumentException(
                    "expected a GPU's UUID and an index from 0, found \"" + uuid + "\" and " + index);
        }
        links = Map.copyOf(links);
    }
}
