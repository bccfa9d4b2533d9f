package io.aliquot.scheduler.doctor;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.Closeable;
import java.io.IOException;
import java.io.OutputStream;
import java.time.Instant;
import java.util.Arrays;
import java.util.zip.GZIPOutputStream;

/**
 * Writes regular files into a compressed tar archive. The JDK has no tar; of the format this is what POSIX calls ustar (pax,
 * "ustar Interchange Format"), without owners.
 */
final class TarGz implements Closeable {
    private static final int BLOCK = 512;
    private static final int PREFIX = 345;
    private static final int CHECKSUM = 148;
    private static final int CHECKSUM_LENGTH = 8;

    private final OutputStream out;
    private final Instant time;
    private long size;

    /**
     * @param out is closed with the archive
     * @param time when the files were written
     */
    TarGz(OutputStream out, Instant time) throws IOException {
        this.out = new GZIPOutputStream(out);
        this.time = time;
    }

    /** The bytes of all files so far, before they are compressed. */
    long size() {
        return size;
    }

    /**
     * @param folder at most 155 bytes, with slashes
     * @param name at most 100 bytes
     */
    void add(String folder, String name, byte[] content) throws IOException {
        out.write(header(folder, name, content.length));
        out.write(content);
        out.write(new byte[Math.floorMod(-content.length, BLOCK)]);
        size += content.length;
    }

    private byte[] header(String folder, String name, int length) {
        byte[] header = new byte[BLOCK];
        text(header, 0, 100, name);
        octal(header, 100, 8, 0644);
        octal(header, 108, 8, 0); // user
        octal(header, 116, 8, 0); // group
        octal(header, 124, 12, length);
        octal(header, 136, 12, time.getEpochSecond());
        header[156] = '0'; // a regular file
        text(header, 257, 8, "ustar\0" + "00");
        text(header, PREFIX, 155, folder);
        // The sum counts its own field as spaces.
        Arrays.fill(header, CHECKSUM, CHECKSUM + CHECKSUM_LENGTH, (byte) ' ');
        int sum = 0;
        for (byte one : header) {
            sum += Byte.toUnsignedInt(one);
        }
        octal(header, CHECKSUM, CHECKSUM_LENGTH - 1, sum);
        return header;
    }

    /** Writes a field of digits and a zero byte. */
    private static void octal(byte[] header, int offset, int length, long value) {
        text(header, offset, length, String.format("%0" + (length - 1) + "o\0", value));
    }

    private static void text(byte[] header, int offset, int length, String text) {
        byte[] bytes = text.getBytes(UTF_8);
        if (bytes.length > length) {
            throw new IllegalArgumentException("expected at most " + length + " bytes, found " + text);
        }
        System.arraycopy(bytes, 0, header, offset, bytes.length);
    }

    /** Ends the archive. */
    @Override
    public void close() throws IOException {
        try (out) {
            out.write(new byte[2 * BLOCK]);
        }
    }
}
