package io.aliquot.api.shim;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.GpuUuids;
import io.aliquot.api.pods.Held;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Collections;
import java.util.Objects;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.UUID;

/**
 * The file in which the node agent tells the processes of a container what they cannot see ({@link
 * ContainerPaths#AGENT}). {@code native-shim/include/aliquot/agent.h} defines its layout; the tests of both programs
 * read the example in {@code native-shim/golden}. Programs in the container can read the file and not write it.
 *
 * <p>The agent creates a file before the container starts, and then changes it in place, because the container's mount
 * stays with the inode. Immutable. The values of an entry are not read atomically, so they may belong to different
 * instants.
 */
public final class AgentFile {
    /** The file's size in bytes. */
    public static final int SIZE = 4096;

    /** The maximum number of GPUs of a container. */
    public static final int DEVICES = 16;

    private static final long MAGIC = 0x3154474151494c41L; // "ALIQAGT1", little-endian
    private static final int VERSION = 1;
    private static final int HEADER_SIZE = 64;
    private static final int DEVICE_SIZE = 128;

    // Offsets in the header.
    private static final int MAGIC_AT = 0;
    private static final int VERSION_AT = 8;
    private static final int HEADER_SIZE_AT = 12;
    private static final int TOTAL_SIZE_AT = 16;
    private static final int DEVICE_COUNT_AT = 20;
    private static final int DEVICE_SIZE_AT = 24;
    private static final int HELD_AT = 28;

    // Of what the container holds (ALIQUOT_AGENT_HOLDS_...).
    private static final int SHARES = 1;
    private static final int WHOLE_CARDS = 2;

    // Offsets in a device.
    private static final int UUID_AT = 0;
    private static final int UUID_SIZE = 16;
    private static final String UUID_PREFIX = "GPU-";
    private static final int UNATTRIBUTED_AT = 24;

    private final SortedMap<Integer, Device> devices;
    private final Held held;

    private AgentFile(SortedMap<Integer, Device> devices, Held held) {
        this.devices = devices;
        this.held = held;
    }

    /** Writes into a file, as {@code FileChannel.write(ByteBuffer, long)}. */
    public interface PartWriter {
        /** Writes the part, or some of it; returns how many bytes. */
        int write(ByteBuffer part, long at) throws IOException;
    }

    /** The content of a new file: the header's constants, zeros elsewhere. */
    public static byte[] fresh() {
        ByteBuffer file = ByteBuffer.allocate(SIZE).order(ByteOrder.LITTLE_ENDIAN);
        file.putLong(MAGIC_AT, MAGIC);
        file.putInt(VERSION_AT, VERSION);
        file.putInt(HEADER_SIZE_AT, HEADER_SIZE);
        file.putInt(TOTAL_SIZE_AT, SIZE);
        file.putInt(DEVICE_COUNT_AT, DEVICES);
        file.putInt(DEVICE_SIZE_AT, DEVICE_SIZE);
        return file.array();
    }

    /**
     * Reads a file's content.
     *
     * @throws FormatException if the content is not an agent's file of this version
     */
    public static AgentFile parse(byte[] content) {
        ByteBuffer file = ByteBuffer.wrap(content).order(ByteOrder.LITTLE_ENDIAN);
        expect("size", SIZE, content.length);
        expect("magic", MAGIC, file.getLong(MAGIC_AT));
        expect("version", VERSION, file.getInt(VERSION_AT));
        expect("header's size", HEADER_SIZE, file.getInt(HEADER_SIZE_AT));
        expect("total size", SIZE, file.getInt(TOTAL_SIZE_AT));
        expect("number of devices", DEVICES, file.getInt(DEVICE_COUNT_AT));
        expect("device's size", DEVICE_SIZE, file.getInt(DEVICE_SIZE_AT));
        var devices = new TreeMap<Integer, Device>();
        for (int entry = 0; entry < DEVICES; entry++) {
            ByteBuffer bytes = file.slice(deviceAt(entry), DEVICE_SIZE);
            long first = bytes.getLong(UUID_AT); // big-endian: a UUID's bytes are in the order of its text
            long second = bytes.getLong(UUID_AT + Long.BYTES);
            if (first != 0 && second != 0) {
                devices.put(
                        entry,
                        new Device(
                                UUID_PREFIX + new UUID(first, second),
                                bytes.order(ByteOrder.LITTLE_ENDIAN).getLong(UNATTRIBUTED_AT)));
            }
        }
        Held held = switch (file.getInt(HELD_AT)) {
            case SHARES -> Held.SHARE;
            case WHOLE_CARDS -> Held.WHOLE_CARD;
            default -> Held.UNKNOWN;
        };
        return new AgentFile(devices, held);
    }

    /** The GPUs by the index of their entry, 0 to {@value #DEVICES} - 1. An index without a GPU is free. */
    public SortedMap<Integer, Device> devices() {
        return Collections.unmodifiableSortedMap(devices);
    }

    /** What the container holds of its GPUs; {@link Held#WHOLE_CARD} if it holds nothing else. */
    public Held held() {
        return held;
    }

    /** Writes what the container holds of its GPUs, a share or whole cards. */
    public static void writeHeld(PartWriter file, Held held) throws IOException {
        ByteBuffer word = ByteBuffer.allocate(Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        writeFully(
                file,
                word.putInt(held == Held.WHOLE_CARD ? WHOLE_CARDS : SHARES).flip(),
                HELD_AT);
    }

    /**
     * Makes an entry for a GPU. The arbiter fills entries and makes none.
     *
     * @param file the container's file
     * @param entry the index of a free entry, 0 to {@value #DEVICES} - 1
     */
    public static void makeEntry(PartWriter file, int entry, String gpu) throws IOException {
        UUID uuid = UUID.fromString(GpuUuids.digits(gpu));
        ByteBuffer bytes = ByteBuffer.allocate(UUID_SIZE); // big-endian: a UUID's bytes are in the order of its text
        bytes.putLong(uuid.getMostSignificantBits());
        bytes.putLong(uuid.getLeastSignificantBits());
        writeFully(file, bytes.flip(), deviceAt(entry) + UUID_AT);
    }

    /**
     * Writes the memory that a container uses beyond its charges, and no other value of the entry.
     *
     * @param unattributedBytes below 2^52
     * @param updatedMillis the time, in ms of {@code CLOCK_MONOTONIC} ({@link System#nanoTime} on Linux)
     */
    public static void writeUnattributed(PartWriter file, int entry, long unattributedBytes, long updatedMillis)
            throws IOException {
        ByteBuffer bytes = ByteBuffer.allocate(2 * Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        bytes.putLong(unattributedBytes);
        bytes.putLong(updatedMillis);
        writeFully(file, bytes.flip(), deviceAt(entry) + UNATTRIBUTED_AT);
    }

    private static void writeFully(PartWriter file, ByteBuffer bytes, int at) throws IOException {
        while (bytes.hasRemaining()) {
            file.write(bytes, (long) at + bytes.position());
        }
    }

    private static int deviceAt(int entry) {
        return HEADER_SIZE + Objects.checkIndex(entry, DEVICES) * DEVICE_SIZE;
    }

    private static void expect(String field, long expected, long found) {
        if (expected != found) {
            throw FormatException.expected("an agent's file's " + field + " " + expected, Long.toString(found));
        }
    }

    /**
     * What the agent has said about one GPU of the container. The arbiter says more in the entry.
     *
     * @param uuid as NVML prints it; neither half of it is zero
     * @param unattributedBytes memory that the host sees the container use in addition to its charges
     */
    public record Device(String uuid, long unattributedBytes) {}
}
