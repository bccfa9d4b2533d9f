package io.aliquot.api;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.UUID;

/**
 * The state file of a container ({@link ContainerPaths#REGION}), as {@code native-shim/include/aliquot/region.h} lays it out;
 * {@code native-shim/golden} holds a file that both sides read alike. Programs in the container can write it, so what is
 * read here is what the container says of itself and no more.
 *
 * <p>Immutable; a snapshot without any claim that its words were read at one instant.
 */
public final class Region {
    /** Bytes of the file, always. */
    public static final int SIZE = 565_248;

    /** GPUs that a container may use at most. */
    public static final int DEVICES = 16;

    /** Processes of a container that may hold device memory at once. */
    public static final int PROCESSES = 512;

    /** Bytes at the file's beginning that {@link #unplacedAddresses(ByteBuffer)} needs. */
    public static final int HEADER_SIZE = 4096;

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
    private static final int UNPLACED_ADDRESSES_AT = 128;

    // Offsets in a device.
    private static final int TAT_AT = 64;
    private static final int DEVICE_GPU_TIME_AT = 72;
    private static final int THROTTLED_AT = 80;
    private static final int WANTED_AT = 88;
    private static final int RULING_AT = 128;
    private static final int RULING_SIZE = 20;

    // Offsets in a process and in a charge.
    private static final int PID_AT = 0;
    private static final int STARTED_AT = 8;
    private static final int CHARGE_GPU_TIME_AT = 8;
    private static final int PEAK_AT = 16;
    private static final int CONTEXT_AT = 24;

    private static final int BYTES_BITS = 52;
    private static final long BYTES_MASK = (1L << BYTES_BITS) - 1;

    private final ByteBuffer file;

    private Region(ByteBuffer file) {
        this.file = file;
    }

    /** A file nobody has used yet: the header's constants, zeros elsewhere. */
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
     * Reads a file's content; an empty one is a fresh one.
     *
     * @throws FormatException if it is not a region of this version
     */
    public static Region parse(byte[] content) {
        ByteBuffer file =
                ByteBuffer.wrap(content.length == 0 ? fresh() : content.clone()).order(ByteOrder.LITTLE_ENDIAN);
        expect("size", SIZE, file.capacity());
        expectOurVersion(file);
        expect("header's size", HEADER_SIZE, file.getInt(HEADER_SIZE_AT));
        expect("total size", SIZE, file.getLong(TOTAL_SIZE_AT));
        expect("number of devices", DEVICES, file.getInt(DEVICE_COUNT_AT));
        expect("number of processes", PROCESSES, file.getInt(PROCESS_COUNT_AT));
        expect("device's size", DEVICE_SIZE, file.getInt(DEVICE_SIZE_AT));
        expect("process's size", PROCESS_SIZE, file.getInt(PROCESS_SIZE_AT));
        expect("charge's size", CHARGE_SIZE, file.getInt(CHARGE_SIZE_AT));
        expectAtMost("high-water mark", PROCESSES, file.getInt(HIGH_WATER_AT));
        return new Region(file);
    }

    /** The GPUs that the container has used, in the order of first use. */
    public List<Device> devices() {
        var devices = new ArrayList<Device>();
        for (int index = 0; index < DEVICES; index++) {
            // UUIDs are bytes in the order in which they are printed, so big-endian.
            int at = deviceAt(index);
            long first = Long.reverseBytes(file.getLong(at));
            long second = Long.reverseBytes(file.getLong(at + Long.BYTES));
            if (first != 0 && second != 0) {
                devices.add(new Device(
                        index,
                        "GPU-" + new UUID(first, second),
                        usedBytes(index),
                        new Compute(
                                file.getLong(at + TAT_AT),
                                file.getLong(at + DEVICE_GPU_TIME_AT),
                                file.getLong(at + THROTTLED_AT),
                                file.getLong(at + WANTED_AT)),
                        Ruling.parse(file.slice(at + RULING_AT, RULING_SIZE))));
            }
        }
        return devices;
    }

    /** What one process holds on one device. */
    public Charge charge(int device, int process) {
        Objects.checkIndex(device, DEVICES);
        int at = CHARGES_AT + (device * PROCESSES + Objects.checkIndex(process, PROCESSES)) * CHARGE_SIZE;
        long word = file.getLong(at);
        return new Charge(
                word & BYTES_MASK,
                (int) (word >>> BYTES_BITS),
                file.getLong(at + CHARGE_GPU_TIME_AT),
                file.getLong(at + PEAK_AT),
                file.getLong(at + CONTEXT_AT));
    }

    /** Who owns a slot, or last did: whether it lives is told by the slot's lock alone. */
    public Owner owner(int process) {
        int at = PROCESSES_AT + Objects.checkIndex(process, PROCESSES) * PROCESS_SIZE;
        return new Owner(Integer.toUnsignedLong(file.getInt(at + PID_AT)), file.getLong(at + STARTED_AT));
    }

    /**
     * Writes what the node agent has to say about a device, in place, without reading or mapping the file.
     *
     * @param region the container's file, open for writing
     * @param device its place in the file, 0 to 15
     */
    public static void write(FileChannel region, int device, Ruling ruling) throws IOException {
        ByteBuffer bytes = ruling.bytes();
        int at = deviceAt(Objects.checkIndex(device, DEVICES)) + RULING_AT;
        while (bytes.hasRemaining()) {
            region.write(bytes, (long) at + bytes.position());
        }
    }

    /** Process slots ever owned, 0 to {@link #PROCESSES}. */
    public int processHighWater() {
        return file.getInt(HIGH_WATER_AT);
    }

    /** Times that the driver gave out an address that the shim could not place; anything but 0 is a hole. */
    public long unplacedAddresses() {
        return unplacedAddresses(file);
    }

    /**
     * The same, read from the header alone.
     *
     * @param header the file's first {@link #HEADER_SIZE} bytes or more, from index 0
     * @throws FormatException if it is not the header of a region of this version
     */
    public static long unplacedAddresses(ByteBuffer header) {
        ByteBuffer file = header.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        if (file.limit() < HEADER_SIZE) {
            throw FormatException.expected("a region's header", file.limit() + " bytes");
        }
        expectOurVersion(file);
        return file.getLong(UNPLACED_ADDRESSES_AT);
    }

    private static int deviceAt(int index) {
        return HEADER_SIZE + index * DEVICE_SIZE;
    }

    private long usedBytes(int device) {
        long sum = 0;
        for (int process = 0; process < processHighWater(); process++) {
            sum += charge(device, process).bytes(); // at most 512 times 2^52
        }
        return sum;
    }

    private static void expectOurVersion(ByteBuffer header) {
        expect("magic", MAGIC, header.getLong(MAGIC_AT));
        expect("version", VERSION, header.getInt(VERSION_AT));
    }

    private static void expect(String what, long expected, long found) {
        if (expected != found) {
            throw FormatException.expected("a region's " + what + " " + expected, Long.toString(found));
        }
    }

    private static void expectAtMost(String what, int most, int found) {
        if (found < 0 || found > most) {
            throw FormatException.expected("a region's " + what + " from 0 to " + most, Integer.toString(found));
        }
    }

    /**
     * A GPU of the container.
     *
     * @param index its place in the file, 0 to 15
     * @param uuid as NVML prints it
     * @param usedBytes what the container's processes are charged, dead ones not yet reaped included
     * @param compute what the container says of its use
     * @param ruling what the node agent has written last
     */
    public record Device(int index, String uuid, long usedBytes, Compute compute, Ruling ruling) {}

    /**
     * GPU time, in nanoseconds; points in time are of {@code CLOCK_MONOTONIC}.
     *
     * @param tat when the GPU time granted so far is used up
     * @param gpuTime charged to all processes, the dead included; only grows
     * @param throttled that launches have been held back, summed over threads; only grows
     * @param wanted when a launch last came or was held back; 0: never
     */
    public record Compute(long tat, long gpuTime, long throttled, long wanted) {}

    /**
     * What the node agent says about a container's device.
     *
     * @param grant the share of GPU time
     * @param unattributedBytes that the host sees the container hold beyond what it is charged, and that count as used
     * @param active containers that use the GPU now, this one included, at most 2^32 - 1; 0: not known
     */
    public record Ruling(Grant grant, long unattributedBytes, long active) {
        public Ruling {
            if (active < 0 || active > 0xffff_ffffL) {
                throw FormatException.expected("active containers from 0 to 4294967295", Long.toString(active));
            }
        }

        private static Ruling parse(ByteBuffer slice) {
            ByteBuffer bytes = slice.order(ByteOrder.LITTLE_ENDIAN);
            return new Ruling(Grant.of(bytes.getLong(0)), bytes.getLong(8), Integer.toUnsignedLong(bytes.getInt(16)));
        }

        private ByteBuffer bytes() {
            ByteBuffer bytes = ByteBuffer.allocate(RULING_SIZE).order(ByteOrder.LITTLE_ENDIAN);
            return bytes.putLong(grant.word())
                    .putLong(unattributedBytes)
                    .putInt((int) active)
                    .flip();
        }
    }

    /**
     * A share of a GPU's time, given at a time of {@code CLOCK_MONOTONIC}: one word, so that nobody reads one without the
     * other. It holds for 3 s.
     *
     * @param millis when, 0 to 2^44 - 1; with a share of 0: there never was a grant
     * @param millionths of the GPU; a right one is at most 1000000, what is read may say up to 1048575
     */
    public record Grant(long millis, int millionths) {
        private static final int SHARE_BITS = 20;

        public Grant {
            if (millis < 0 || millis >>> (Long.SIZE - SHARE_BITS) != 0) {
                throw FormatException.expected("a grant's time below 2^44 ms", Long.toString(millis));
            }
            if (millionths < 0 || millionths >>> SHARE_BITS != 0) {
                throw FormatException.expected("a grant's share below 2^20", Integer.toString(millionths));
            }
        }

        private static Grant of(long word) {
            return new Grant(word >>> SHARE_BITS, (int) (word & ((1 << SHARE_BITS) - 1)));
        }

        private long word() {
            return millis << SHARE_BITS | millionths;
        }
    }

    /**
     * The owner of a slot.
     *
     * @param pid in its own PID namespace; 0: not known
     * @param startedMicros when it took the slot, since 1970; an unsigned number
     */
    public record Owner(long pid, long startedMicros) {}

    /**
     * What one process holds on one device.
     *
     * @param bytes charged, at most 4 PiB
     * @param undecided threads that have added their bytes and don't know yet whether they may keep them
     * @param gpuTime in nanoseconds, charged to this process
     * @param peakBytes the most that {@code bytes} has been
     * @param contextBytes of {@code bytes}, those that are its contexts'
     */
    public record Charge(long bytes, int undecided, long gpuTime, long peakBytes, long contextBytes) {}
}
