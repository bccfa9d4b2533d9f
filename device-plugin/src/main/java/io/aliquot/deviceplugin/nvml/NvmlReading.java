package io.aliquot.deviceplugin.nvml;

import java.util.List;
import java.util.Set;

/** What the latest reading of NVML returned. */
public sealed interface NvmlReading {
    /**
     * NVML answered.
     *
     * @param list the GPUs that NVML lists; one that does not return its UUID is left out
     * @param complete whether each GPU that NVML lists returned its UUID
     * @param migCards the UUIDs of the cards in MIG mode, whose instances are in the list
     * @param driver the version of the driver
     * @param driverLoads how often this process found the driver loaded after it was not; the number only grows
     * @param features of all these GPUs; without GPUs if they are unknown
     */
    record Gpus(
            List<PhysicalGpu> list,
            boolean complete,
            Set<String> migCards,
            String driver,
            int driverLoads,
            NodeFeatures features)
            implements NvmlReading {
        public Gpus {
            list = List.copyOf(list);
            migCards = Set.copyOf(migCards);
        }
    }

    /**
     * NVML was not asked: it is being opened for the first time, or it is closed for a driver upgrade. What is known
     * about the GPUs stays valid.
     *
     * @param reason for a log line
     */
    record NotAsked(String reason) implements NvmlReading {}

    /**
     * NVML is not open, failed as a whole, or does not return.
     *
     * @param reason for a log line
     */
    record Unavailable(String reason) implements NvmlReading {}
}
