package io.aliquot.deviceplugin.nvml;

import static io.aliquot.deviceplugin.nvml.NvmlLibrary.FUNCTION_NOT_FOUND;
import static io.aliquot.deviceplugin.nvml.NvmlLibrary.INSUFFICIENT_SIZE;
import static io.aliquot.deviceplugin.nvml.NvmlLibrary.SUCCESS;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import com.sun.jna.ptr.IntByReference;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.OptionalLong;

/** Reads how a GPU is used: by which processes, and how hot and busy it is. */
final class UsageReader {
    private static final int FIRST_GUESS = 128;
    private static final int ATTEMPTS = 4;
    private static final int PROCESS_SIZE = 24; // nvmlProcessInfo_v2_t: pid, bytes, two ids of a MIG instance
    private static final int PROCESS_BYTES_AT = 8;
    private static final int SAMPLE_SIZE = 32; // nvmlProcessUtilizationSample_t: pid, time, four percentages
    private static final int SAMPLE_TIME_AT = 8;
    private static final int SAMPLE_SM_AT = 16;
    private static final int UTILIZATION_SIZE = 8; // nvmlUtilization_t: gpu, memory
    private static final int TEMPERATURE_GPU = 0;
    private static final long NOT_AVAILABLE = -1; // NVML_VALUE_NOT_AVAILABLE

    private final NvmlLibrary library;

    UsageReader(NvmlLibrary library) {
        this.library = library;
    }

    /** Throws if the GPU does not list its compute processes. */
    GpuUsage read(String uuid, Pointer handle, long since) throws NvmlException {
        List<GpuUsage.GpuProcess> found = new ArrayList<>();
        int code = list("nvmlDeviceGetComputeRunningProcesses", handle, found);
        if (code != FUNCTION_NOT_FOUND) {
            library.check("nvmlDeviceGetComputeRunningProcesses", code);
        }
        list("nvmlDeviceGetGraphicsRunningProcesses", handle, found); // a GPU without graphics may refuse the question
        // A process with a compute and a graphics context is in both lists with the same figure.
        Map<Integer, GpuUsage.GpuProcess> processes = new LinkedHashMap<>();
        found.forEach(process -> processes.merge(
                process.pid(), process, (one, other) -> one.bytes().isPresent() ? one : other));
        return new GpuUsage(
                uuid,
                utilization(handle),
                library.numberIfKnown("nvmlDeviceGetTemperature", handle, TEMPERATURE_GPU),
                library.numberIfKnown("nvmlDeviceGetPowerUsage", handle),
                List.copyOf(processes.values()),
                processUtilization(handle, since));
    }

    /** Versions 2 and 3 fill the same structure; version 2 is that of drivers before 510. */
    private int list(String name, Pointer handle, List<GpuUsage.GpuProcess> found) {
        int capacity = FIRST_GUESS;
        int code = INSUFFICIENT_SIZE;
        for (int attempt = 0; attempt < ATTEMPTS && code == INSUFFICIENT_SIZE; attempt++) {
            try (var list = new Memory((long) capacity * PROCESS_SIZE)) {
                var count = new IntByReference(capacity);
                code = library.callNewest(List.of(name + "_v3", name + "_v2"), handle, count, list);
                if (code == SUCCESS) {
                    for (int i = 0; i < Math.min(count.getValue(), capacity); i++) {
                        long bytes = list.getLong((long) i * PROCESS_SIZE + PROCESS_BYTES_AT);
                        found.add(new GpuUsage.GpuProcess(
                                list.getInt((long) i * PROCESS_SIZE),
                                bytes == NOT_AVAILABLE ? OptionalLong.empty() : OptionalLong.of(bytes)));
                    }
                }
                capacity = 2 * Math.max(capacity, count.getValue());
            }
        }
        return code;
    }

    private List<GpuUsage.Utilization> processUtilization(Pointer handle, long since) {
        int capacity = FIRST_GUESS;
        for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
            try (var samples = new Memory((long) capacity * SAMPLE_SIZE)) {
                var count = new IntByReference(capacity);
                int code = library.call("nvmlDeviceGetProcessUtilization", handle, samples, count, since);
                if (code == SUCCESS) {
                    return samples(samples, Math.min(count.getValue(), capacity));
                }
                if (code != INSUFFICIENT_SIZE) {
                    return List.of(); // no process was busy, or the driver does not know
                }
                capacity = 2 * Math.max(capacity, count.getValue());
            }
        }
        return List.of();
    }

    private static List<GpuUsage.Utilization> samples(Memory samples, int count) {
        var list = new ArrayList<GpuUsage.Utilization>();
        for (int i = 0; i < count; i++) {
            long at = (long) i * SAMPLE_SIZE;
            list.add(new GpuUsage.Utilization(
                    samples.getInt(at),
                    samples.getLong(at + SAMPLE_TIME_AT),
                    Math.clamp(samples.getInt(at + SAMPLE_SM_AT), 0, 100)));
        }
        return list;
    }

    private OptionalInt utilization(Pointer handle) {
        try (var rates = new Memory(UTILIZATION_SIZE)) {
            return library.call("nvmlDeviceGetUtilizationRates", handle, rates) == SUCCESS
                    ? OptionalInt.of(rates.getInt(0))
                    : OptionalInt.empty();
        }
    }
}
