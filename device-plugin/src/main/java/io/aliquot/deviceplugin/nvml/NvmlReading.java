package io.aliquot.deviceplugin.nvml;

import java.util.List;

/** What one reading of NVML returned. */
public sealed interface NvmlReading {
    /**
     * NVML answered.
     *
     * @param list the GPUs that NVML lists; one that does not return its UUID is left out
     */
    record Gpus(List<PhysicalGpu> list) implements NvmlReading {
        public Gpus {
            list = List.copyOf(list);
        }
    }

    /**
     * NVML is not open or failed as a whole.
     *
     * @param reason for a log line
     */
    record Unavailable(String reason) implements NvmlReading {}
}
