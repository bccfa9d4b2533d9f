package io.aliquot.deviceplugin.health;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/** What each XID error of NVIDIA's driver means for a GPU, from {@code xids.csv} and the administrator's settings. */
public final class XidTable {
    /** The largest number that a setting accepts; NVIDIA's catalog ends below 200. */
    public static final int LARGEST = 9999;

    private static final String FILE = "xids.csv";
    private static final String HEADER = "number,class,meaning,source";
    private static final Set<String> SOURCES = Set.of("catalog", "plugin");

    private final Map<Integer, Entry> entries;

    private XidTable(Map<Integer, Entry> entries) {
        this.entries = Map.copyOf(entries);
    }

    /** What an XID error does to its GPU. */
    public enum Severity {
        /** The error of one program; the GPU works as before. */
        APPLICATION,
        /** A message; the GPU works as before. What NVML reports about the GPU decides. */
        INFORMATION,
        /** The GPU is unhealthy until a probe succeeds. */
        GPU,
        /** An error of NVLink, which lasts until the GPU is reset. */
        LINK,
        /** The GPU must be reset, or the driver reloaded. */
        RESET,
        /** The node must be rebooted. */
        REBOOT;

        /** Whether a GPU with this error gets no new vGPUs. */
        public boolean makesUnhealthy() {
            return this != APPLICATION && this != INFORMATION;
        }

        private static Severity parse(String text) {
            for (Severity severity : values()) {
                if (severity.name().toLowerCase(Locale.ROOT).equals(text)) {
                    return severity;
                }
            }
            throw new IllegalArgumentException("expected the class of an XID, found \"" + text + "\"");
        }
    }

    /**
     * An XID error.
     *
     * @param meaning in a few words; empty for a number that is not in the table
     */
    public record Entry(int number, Severity severity, String meaning) {
        /** As users read it: {@code XID 48 (double bit ECC error)}. */
        public String print() {
            return "XID " + number + (meaning.isEmpty() ? "" : " (" + meaning + ")");
        }

        private Entry with(Severity other) {
            return new Entry(number, other, meaning);
        }
    }

    /**
     * Reads the table.
     *
     * @param ignored XIDs after which a GPU stays healthy, whatever the table says
     * @param fatal XIDs after which a GPU must be reset, whatever the table says
     */
    public static XidTable load(Set<Integer> ignored, Set<Integer> fatal) {
        Map<Integer, Entry> entries = new HashMap<>();
        for (String line : lines()) {
            if (!line.startsWith("#") && !line.equals(HEADER)) {
                Entry entry = parse(line);
                if (entries.put(entry.number, entry) != null) {
                    throw new IllegalArgumentException(FILE + ": XID " + entry.number + " is there twice");
                }
            }
        }
        var table = new XidTable(entries);
        ignored.forEach(number -> entries.put(number, table.of(number).with(Severity.INFORMATION)));
        fatal.forEach(number -> entries.put(number, table.of(number).with(Severity.RESET)));
        return new XidTable(entries);
    }

    /** An XID by its number. NVIDIA adds XIDs with new drivers; an unknown one is an error of the GPU. */
    public Entry of(int number) {
        return entries.getOrDefault(number, new Entry(number, Severity.GPU, ""));
    }

    private static Entry parse(String line) {
        String[] fields = line.split(",", -1);
        if (fields.length != 4 || fields[2].isBlank() || !SOURCES.contains(fields[3])) {
            throw new IllegalArgumentException(FILE + ": expected " + HEADER + ", found \"" + line + "\"");
        }
        return new Entry(Integer.parseInt(fields[0]), Severity.parse(fields[1]), fields[2]);
    }

    private static List<String> lines() {
        try (InputStream file = XidTable.class.getResourceAsStream(FILE)) {
            if (file == null) {
                throw new IllegalStateException("the program lacks its resource " + FILE);
            }
            return new BufferedReader(new InputStreamReader(file, StandardCharsets.UTF_8))
                    .lines()
                    .toList();
        } catch (IOException e) {
            throw new UncheckedIOException(FILE, e);
        }
    }
}
