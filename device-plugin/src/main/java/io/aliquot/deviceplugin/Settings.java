package io.aliquot.deviceplugin;

import io.aliquot.api.FormatException;
import io.aliquot.api.SlotCount;
import io.aliquot.api.VisibleDevices;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.regex.Pattern;

/**
 * All settings of this process, from its environment.
 *
 * @param nodeName {@code NODE_NAME}: the Node this process looks after, by the downward API; no default
 * @param slots {@code ALIQUOT_SLOTS}: vGPUs per GPU at most, where the node's annotation doesn't say; default 10
 * @param visibleDevices {@code ALIQUOT_VISIBLE_DEVICES}: how the node's NVIDIA runtime names GPUs; default
 *     <code>{uuid}</code>
 * @param kubeletDir {@code ALIQUOT_KUBELET_DIR}: the folder of the kubelet's plugin sockets; default
 *     {@code /var/lib/kubelet/device-plugins}
 * @param stateDir {@code ALIQUOT_STATE_DIR}: shims and slots, on the host and here at the same path; default
 *     {@code /var/lib/aliquot}
 * @param shimSource {@code ALIQUOT_SHIM_SOURCE}: {@code libaliquot.so} and {@code VERSION}; default
 *     {@code /opt/aliquot/shim}
 * @param nvml {@code ALIQUOT_NVML}: the library to open, by name or path; default {@code libnvidia-ml.so.1}
 * @param metricsPort {@code ALIQUOT_METRICS_PORT}: health and metrics over HTTP, 0 for any free port; default 9091
 */
public record Settings(
        String nodeName,
        int slots,
        VisibleDevices visibleDevices,
        Path kubeletDir,
        Path stateDir,
        Path shimSource,
        String nvml,
        int metricsPort) {
    private static final int LARGEST_PORT = 65_535;
    // A Node's name is a DNS subdomain (Kubernetes: object names).
    private static final Pattern NODE_NAME = Pattern.compile("[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?");

    /**
     * Reads the environment.
     *
     * @throws FormatException that names every setting that is wrong, and what to write
     */
    public static Settings parse(Map<String, String> environment) {
        var reader = new Reader(environment);
        String nodeName = reader.read("NODE_NAME", "", Settings::nodeName);
        int slots = reader.read(
                "ALIQUOT_SLOTS", Integer.toString(SlotCount.DEFAULT), text -> SlotCount.parse("slots", text));
        VisibleDevices visibleDevices = reader.read("ALIQUOT_VISIBLE_DEVICES", "{uuid}", VisibleDevices::new);
        Path kubeletDir = reader.read("ALIQUOT_KUBELET_DIR", "/var/lib/kubelet/device-plugins", Settings::folder);
        Path stateDir = reader.read("ALIQUOT_STATE_DIR", "/var/lib/aliquot", Settings::folder);
        Path shimSource = reader.read("ALIQUOT_SHIM_SOURCE", "/opt/aliquot/shim", Settings::folder);
        String nvml = reader.read("ALIQUOT_NVML", "libnvidia-ml.so.1", Settings::library);
        int metricsPort = reader.read("ALIQUOT_METRICS_PORT", "9091", Settings::port);
        reader.throwIfWrong();
        return new Settings(nodeName, slots, visibleDevices, kubeletDir, stateDir, shimSource, nvml, metricsPort);
    }

    private static String nodeName(String text) {
        if (!NODE_NAME.matcher(text).matches()) {
            throw new FormatException("expected the name of this pod's node, found \"" + text
                    + "\"; set it from the downward API's spec.nodeName");
        }
        return text;
    }

    private static Path folder(String text) {
        if (!text.startsWith("/") || text.indexOf('\0') >= 0) {
            throw new FormatException("expected an absolute path, found \"" + text + "\"");
        }
        return Path.of(text).normalize();
    }

    private static String library(String text) {
        if (!text.matches("[!-~]{1,4096}")) {
            throw new FormatException("expected the name or the path of NVML's library, found \"" + text + "\"");
        }
        return text;
    }

    private static int port(String text) {
        if (!text.matches("[0-9]{1,5}") || Integer.parseInt(text) > LARGEST_PORT) {
            throw new FormatException("expected a port from 0 to " + LARGEST_PORT + ", found \"" + text + "\"");
        }
        return Integer.parseInt(text);
    }

    /** Reads on after a wrong setting, so that one start tells them all. */
    private static final class Reader {
        private final Map<String, String> environment;
        private final List<String> wrong = new ArrayList<>();

        Reader(Map<String, String> environment) {
            this.environment = environment;
        }

        <T> T read(String name, String byDefault, Function<String, T> parse) {
            String text = environment.getOrDefault(name, "");
            try {
                return parse.apply(text.isEmpty() ? byDefault : text);
            } catch (FormatException e) {
                wrong.add(name + ": " + e.getMessage());
                // Never used: throwIfWrong comes before the settings are made.
                return byDefault.isEmpty() ? parse.apply("unset") : parse.apply(byDefault);
            }
        }

        void throwIfWrong() {
            if (!wrong.isEmpty()) {
                throw new FormatException(String.join("\n", wrong));
            }
        }
    }
}
