package io.aliquot.api.shim;

import io.aliquot.api.format.FormatException;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.UUID;

/**
 * The file in which the processes of a container count their memory and GPU time ({@link ContainerPaths#REGION}).
 * {@code native-shim/include/aliquot/region.h} defines its layout; the tests of both programs read the example in
 * {@code native-shim/golden}. Programs in the container can write the file, so its content proves nothing outside that
 * container. What the node agent tells them is in the {@link AgentFile}.
 *
 * <p>Immutable. The words of a region are not read atomically, so they may belong to different instants.
 */
public final class Region {
    /** The file's size in bytes. */
    public static final int SIZE = 565_248;

    /** The maximum number of GPUs of a container. */
    public static final int DEVICES = 16;

    /** The maximum number of a container's processes that hold device memory at the same time. */
    public static final int PROCESSES = 512;

    private static final int HEADER_SIZE = 4096;
    private static final long MAGIC = 0x31544f5551494c41L; // "ALIQUOT1", little-endian
    private static final int VERSION = 1;
    private static final int DEVICE_SIZE = 256;
    private static final int PROCESS_SIZE = 64;
    private static final int CHARGE_SIZE = 64;
    private static final int PROCESSES_AT = HEADER_SIZE + DEVICES * DEVICE_SIZE;
    private static final int CHARGES_AT = PROCESSES_AT + PROCESSES * PROCESS_SIZE;

    // Offsets in the header.
    private static final int MAGIC_AT = 0;
    private static final int VERSION_AT = 8;
    private static final int HEADER_SIZE_AT = 12;
    private static final int TOTAL_SIZE_AT = 16;
    private static final int DEVICE_COUNT_AT = 24;
    private static final int PROCESS_COUNT_AT = 28;
    private static final int DEVICE_SIZE_AT = 32;
    private static final int PROCESS_SIZE_AT = 36;
    private static final int CHARGE_SIZE_AT = 40;
    private static final int HIGH_WATER_AT = 64;
    private static final int UNHOOKED_FUNCTIONS_AT = 128; // unhooked_functions
    private static final int PROCESS_REFUSED_AT = 136; // process_refused_ms
    private static final int NOTICES_END = PROCESS_REFUSED_AT + Long.BYTES;

    // Offsets in a device.
    private static final int THROTTLED_AT = 80;
    private static final int DENIED_AT = 128;

    // In a process and in a charge.
    private static final int PID_AT = 0;
    private static final int BYTES_AT = 0;

    private static final int BYTES_BITS = 52;
    private static final long BYTES_MASK = (1L << BYTES_BITS) - 1;

    private final ByteBuffer file;

    private Region(ByteBuffer file) {
        this.file = file;
    }

    /** Reads a part of a file. */
    public interface PartReader {
        /** Fills the part, or some of it; returns -1 at the end of the file. */
        int read(ByteBuffer part, long at) throws IOException;
    }

    /** The content of a new file: the header's constants, zeros elsewhere. */
    public static byte[] fresh() {
        ByteBuffer file = ByteBuffer.allocate(SIZE).order(ByteOrder.LITTLE_ENDIAN);
        file.putLong(MAGIC_AT, MAGIC);
        file.putInt(VERSION_AT, VERSION);
        file.putInt(HEADER_SIZE_AT, HEADER_SIZE);
        file.putLong(TOTAL_SIZE_AT, SIZE);
        file.putInt(DEVICE_COUNT_AT, DEVICES);
        file.putInt(PROCESS_COUNT_AT, PROCESSES);
        file.putInt(DEVICE_SIZE_AT, DEVICE_SIZE);
        file.putInt(PROCESS_SIZE_AT, PROCESS_SIZE);
        file.putInt(CHARGE_SIZE_AT, CHARGE_SIZE);
        return file.array();
    }

    /**
     * Reads what a file says of the GPUs and processes in use, without the rest of its {@value #SIZE} bytes.
     *
     * @param file its part from a position on, as {@code FileChannel.read(ByteBuffer, long)} does
     * @param buffer of {@value #SIZE} bytes; the region is valid until the buffer is used again
     * @throws FormatException if the content is not a region of this version
     */
    public static Region read(PartReader file, ByteBuffer buffer) throws IOException {
        read(file, buffer, 0, PROCESSES_AT);
        ByteBuffer content = buffer.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        expectOurVersion(content);
        var region = new Region(content);
        int processes = region.processHighWater();
        if (processes < 0 || processes > PROCESSES) {
            throw FormatException.expected(
                    "a region's high-water mark from 0 to " + PROCESSES, Integer.toString(processes));
        }
        read(file, buffer, PROCESSES_AT, processes * PROCESS_SIZE);
        for (Device device : region.devices()) {
            read(file, buffer, CHARGES_AT + device.index() * PROCESSES * CHARGE_SIZE, processes * CHARGE_SIZE);
        }
        return region;
    }

    private static void read(PartReader file, ByteBuffer buffer, int at, int length) throws IOException {
        ByteBuffer part = buffer.slice(at, length);
        while (part.hasRemaining()) {
            if (file.read(part, (long) at + part.position()) < 0) {
                throw new EOFException("the region became shorter");
            }
        }
    }

    /** The GPUs that the container has used, in the order of their first use. */
    public List<Device> devices() {
        var devices = new ArrayList<Device>();
        for (int index = 0; index < DEVICES; index++) {
            // A UUID's bytes are in the order of its text, so it is big-endian.
            int at = deviceAt(index);
            long first = Long.reverseBytes(file.getLong(at));
            long second = Long.reverseBytes(file.getLong(at + Long.BYTES));
            if (first != 0 && second != 0) {
                devices.add(new Device(
                        index,
                        "GPU-" + new UUID(first, second),
                        file.getLong(at + THROTTLED_AT),
                        file.getLong(at + DENIED_AT)));
            }
        }
        return devices;
    }

    /**
     * The device memory charged to one process on one device, at most 4 PiB.
     *
     * @param device 0 to {@value #DEVICES} - 1
     * @param process a process slot, 0 to {@value #PROCESSES} - 1
     */
    public long chargedBytes(int device, int process) {
        Objects.checkIndex(device, DEVICES);
        int at = CHARGES_AT + (device * PROCESSES + Objects.checkIndex(process, PROCESSES)) * CHARGE_SIZE;
        return file.getLong(at + BYTES_AT) & BYTES_MASK;
    }

    /**
     * The ID in its PID namespace of the process that owns a process slot or owned it last; 0: unknown. Only the slot's file
     * lock tells whether it is alive.
     *
     * @param process a process slot, 0 to {@value #PROCESSES} - 1
     */
    public int pid(int process) {
        return file.getInt(PROCESSES_AT + Objects.checkIndex(process, PROCESSES) * PROCESS_SIZE + PID_AT);
    }

    /** The number of process slots that were ever owned, 0 to {@link #PROCESSES}; those beyond are unused. */
    public int processHighWater() {
        return file.getInt(HIGH_WATER_AT);
    }

    /**
     * What a container's processes say to the node agent in the header. The container may have written anything.
     *
     * @param unhookedFunctions how often the driver returned a function that the shim must hook but does not know ({@code
     *     unhooked_functions} in region.h). Calls of such a function bypass the limits
     * @param processRefusedMillis when a process was last refused because {@value #PROCESSES} others held device memory, in
     *     ms of {@code CLOCK_MONOTONIC} ({@code process_refused_ms}); 0: never
     */
    public record Notices(long unhookedFunctions, long processRefusedMillis) {}

    /**
     * Reads the notices alone.
     *
     * @throws FormatException if the content is not a region of this version
     */
    public static Notices notices(PartReader file) throws IOException {
        ByteBuffer header = ByteBuffer.allocateDirect(NOTICES_END).order(ByteOrder.LITTLE_ENDIAN);
        read(file, header, 0, header.capacity());
        expectOurVersion(header);
        return new Notices(header.getLong(UNHOOKED_FUNCTIONS_AT), header.getLong(PROCESS_REFUSED_AT));
    }

    private static int deviceAt(int index) {
        return HEADER_SIZE + index * DEVICE_SIZE;
    }

    private static void expectOurVersion(ByteBuffer header) {
        expect("magic", MAGIC, header.getLong(MAGIC_AT));
        expect("version", VERSION, header.getInt(VERSION_AT));
    }

    private static void expect(String field, long expected, long found) {
        if (expected != found) {
            throw FormatException.expected("a region's " + field + " " + expected, Long.toString(found));
        }
    }

    /**
     * A GPU of the container.
     *
     * @param index its index in the file, 0 to {@value #DEVICES} - 1
     * @param uuid as NVML prints it
     * @param throttledNanos for which launches were delayed, summed over threads, as the processes say; never decreases
     * @param denied how often the limit refused memory; never decreases
     */
    public record Device(int index, String uuid, long throttledNanos, long denied) {}
}
