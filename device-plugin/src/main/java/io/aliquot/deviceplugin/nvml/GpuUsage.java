package io.aliquot.deviceplugin.nvml;

import java.util.List;
import java.util.OptionalInt;
import java.util.OptionalLong;

/**
 * How one GPU is used, as NVML says. A figure that the driver does not have is empty and not 0.
 *
 * @param uuid as NVML prints it
 * @param utilizationPercent the share of the last sample period in which a kernel ran, 0 to 100
 * @param temperatureCelsius of the GPU's core
 * @param powerMilliwatts drawn by the whole board
 * @param processes those with a compute or graphics context, each PID once
 * @param utilization of processes, without the idle ones
 */
public record GpuUsage(
        String uuid,
        OptionalInt utilizationPercent,
        OptionalInt temperatureCelsius,
        OptionalInt powerMilliwatts,
        List<GpuProcess> processes,
        List<Utilization> utilization) {
    public GpuUsage {
        processes = List.copyOf(processes);
        utilization = List.copyOf(utilization);
    }

    /**
     * A process that uses the GPU.
     *
     * @param pid in the PID namespace of this process, so a host's PID if that is the host's
     * @param bytes its memory with its contexts; empty where NVML has no figure, such as in MIG mode
     */
    public record GpuProcess(int pid, OptionalLong bytes) {}

    /**
     * What a process used of the GPU's time.
     *
     * @param pid as in {@link GpuProcess}
     * @param endMicros the end of the period, on the driver's clock
     * @param percent of the period in which its kernels ran, 0 to 100
     */
    public record Utilization(int pid, long endMicros, int percent) {}
}
