package io.aliquot.deviceplugin.nvml;

/** What the latest reading of NVML returned. */
public sealed interface NvmlReading {
    /**
     * NVML answered.
     *
     * @param driver the version of the driver
     * @param driverLoads how often this process found the driver loaded after it was not; the number only grows
     */
    record Gpus(Nvml.Listing listing, String driver, int driverLoads) implements NvmlReading {}

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
