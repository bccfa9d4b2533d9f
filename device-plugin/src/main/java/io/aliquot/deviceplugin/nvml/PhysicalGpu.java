package io.aliquot.deviceplugin.nvml;

import io.aliquot.api.Link;
import java.util.Map;

/**
 * What NVML says about one GPU.
 *
 * @param uuid as NVML prints it
 * @param index NVML's, from 0
 * @param model product name
 * @param memoryMiB all of its memory
 * @param numa the NUMA domain it hangs on; -1 where unknown
 * @param trouble why no new vGPU may land on it now; empty when nothing is wrong
 * @param links by the other GPU's UUID; absent means unknown
 */
public record PhysicalGpu(
        String uuid, int index, String model, int memoryMiB, int numa, String trouble, Map<String, Link> links) {
    public PhysicalGpu {
        links = Map.copyOf(links);
    }
}
