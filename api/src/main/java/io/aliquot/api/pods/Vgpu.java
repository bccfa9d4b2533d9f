package io.aliquot.api.pods;

import static io.aliquot.api.format.FormatException.expect;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.GpuUuids;
import io.aliquot.api.nodes.Gpu;
import java.util.HashSet;
import java.util.Set;
import java.util.StringTokenizer;
import java.util.regex.Pattern;

/**
 * The part of one physical GPU that a container holds: a line of the limit file and of the pod's annotation.
 *
 * @param uuid the physical GPU's, as NVML prints it
 * @param memoryMiB device memory in MiB, 1 to {@value Gpu#LARGEST_MIB}
 * @param cores compute in percent of the GPU, 0 to 100; 0: neither limited nor reserved
 * @param policy whether the container may use more compute than its cores
 * @param priority whether its kernels go before others', or after them
 * @param contextMiB device memory of one CUDA context on this model, in MiB, 0 to {@value Gpu#LARGEST_MIB}
 * @param exclusive whether the container has the whole card
 */
public record Vgpu(
        String uuid,
        int memoryMiB,
        int cores,
        CorePolicy policy,
        Priority priority,
        int contextMiB,
        boolean exclusive) {
    private static final String PRIORITY = "compute-priority";

    private static final Pattern KEY = Pattern.compile("[a-z][a-z0-9-]*");
    private static final int MOST_DIGITS = 9;

    public Vgpu {
        GpuUuids.check(uuid);
        range("memory", memoryMiB, 1, Gpu.LARGEST_MIB);
        range("cores", cores, 0, 100);
        range("context", contextMiB, 0, Gpu.LARGEST_MIB);
    }

    static Vgpu parse(String line) {
        expect(
                !(line.isEmpty() || line.startsWith(" ") || line.endsWith(" ")),
                "a vGPU without spaces around it",
                line);
        var fields = new StringTokenizer(line, " ");
        String uuid = fields.nextToken();
        var seen = new HashSet<String>();
        int memoryMiB = 0;
        int cores = 0;
        var policy = CorePolicy.FIXED;
        var priority = Priority.NORMAL;
        int contextMiB = 0;
        boolean exclusive = false;
        while (fields.hasMoreTokens()) {
            String field = fields.nextToken();
            int equals = field.indexOf('=');
            String key = equals < 0 ? field : field.substring(0, equals);
            String value = equals < 0 ? "" : field.substring(equals + 1);
            if (equals < 0) {
                if (key.equals("exclusive")) {
                    once(seen, key);
                    exclusive = true;
                } else {
                    ignoreUnknown(key, field);
                }
                continue;
            }
            switch (key) {
                case "memory" -> memoryMiB = mebibytes(once(seen, key), value);
                case "cores" -> cores = number(once(seen, key), value);
                case "policy" -> {
                    once(seen, key);
                    policy = CorePolicy.parse(value);
                }
                case PRIORITY -> {
                    once(seen, key);
                    priority = Priority.parse(value);
                }
                case "context" -> contextMiB = mebibytes(once(seen, key), value);
                default -> ignoreUnknown(key, field);
            }
        }
        expect(seen.contains("memory") && seen.contains("cores"), "memory=<n>Mi and cores=<n> after the UUID", line);
        return new Vgpu(uuid, memoryMiB, cores, policy, priority, contextMiB, exclusive);
    }

    /** Ignores a field of a newer version. */
    private static void ignoreUnknown(String key, String field) {
        expect(KEY.matcher(key).matches(), "key=value or a flag", field);
    }

    String print() {
        return uuid + " memory=" + memoryMiB + "Mi cores=" + cores + " policy=" + policy.print() + " context="
                + contextMiB + "Mi" + (priority == Priority.NORMAL ? "" : " " + PRIORITY + "=" + priority.print())
                + (exclusive ? " exclusive" : "");
    }

    private static String once(Set<String> seen, String key) {
        if (!seen.add(key)) {
            throw FormatException.expected(key + " once", key + " twice");
        }
        return key;
    }

    private static int mebibytes(String key, String value) {
        if (!value.endsWith("Mi")) {
            throw FormatException.expected(key + "=<n>Mi", value);
        }
        return number(key, value.substring(0, value.length() - 2));
    }

    private static int number(String key, String digits) {
        boolean valid = !digits.isEmpty() && digits.length() <= MOST_DIGITS;
        for (int i = 0; valid && i < digits.length(); i++) {
            valid = digits.charAt(i) >= '0' && digits.charAt(i) <= '9';
        }
        if (!valid) {
            throw FormatException.expected("a whole number for " + key, digits);
        }
        return Integer.parseInt(digits);
    }

    private static void range(String name, int value, int least, int most) {
        if (value < least || value > most) {
            throw FormatException.expected(name + " from " + least + " to " + most, Integer.toString(value));
        }
    }
}
