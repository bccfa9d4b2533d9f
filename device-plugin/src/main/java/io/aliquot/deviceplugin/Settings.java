package io.aliquot.deviceplugin;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.nodes.NodeLabel;
import io.aliquot.api.nodes.SlotCount;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.deviceplugin.cdi.DeviceInjection;
import io.aliquot.deviceplugin.health.XidTable;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.regex.Pattern;

/**
 * All settings of this process, read from its environment. An unset or empty variable has its default.
 *
 * @param nodeName {@code NODE_NAME}: the name of the Node that this process serves, from the downward API; no default
 * @param nodeLabel {@code ALIQUOT_NODE_LABEL}: the label of the nodes whose GPUs are shared; default {@code gpu=on}
 * @param slots {@code ALIQUOT_SLOTS}: vGPUs per GPU, 1 to 1000, where the Node has no annotation for it; default 10
 * @param visibleDevices {@code ALIQUOT_VISIBLE_DEVICES}: how the node's NVIDIA runtime names GPUs; default
 *     <code>{uuid}</code>
 * @param injection {@code ALIQUOT_DEVICE_INJECTION}: how containers get GPUs and limits, {@code cdi} or {@code runtime}; empty
 *     for {@code auto}, the default, which is {@code cdi} where the container runtime resolves CDI names and CDI names the GPUs
 * @param driverRoot {@code ALIQUOT_DRIVER_ROOT}: the folder below which NVIDIA's driver is installed; default none: NVIDIA's
 *     runtime gives this container the driver
 * @param kubeletRoot {@code ALIQUOT_KUBELET_ROOT}: the kubelet's folder, with its sockets of device plugins and of
 *     PodResources; default {@code /var/lib/kubelet}
 * @param labelGpuOperator {@code ALIQUOT_LABEL_GPU_OPERATOR}: {@code true}: keeps the GPU Operator's device plugin off the
 *     node by a label; default {@code false}
 * @param readyResource {@code ALIQUOT_READY_RESOURCE}: the resource by which Cluster Autoscaler is to take the node for
 *     ready; default none
 * @param stateDir {@code ALIQUOT_STATE_DIR}: the folder of shims and regions, at the same path on the host and in this
 *     container; default {@code /var/lib/aliquot}
 * @param ignoreXids {@code ALIQUOT_IGNORE_XIDS}: XIDs after which a GPU stays healthy, comma-separated; default none
 * @param fatalXids {@code ALIQUOT_FATAL_XIDS}: XIDs after which a GPU must be reset, comma-separated; default none
 * @param lowFloor {@code ALIQUOT_LOW_FLOOR}: the percent of a GPU that a container of low priority keeps while one of high
 *     priority has work, 0 to 100; default 5
 * @param endsUnlimited {@code ALIQUOT_UNLIMITED_CONTAINERS}, {@code end} or {@code report}: whether containers that cannot be
 *     limited do not start, where that can be prevented; default {@code end}
 * @param metricsPort {@code ALIQUOT_METRICS_PORT}: TCP port of health and metrics, 0 for any free one; default 9091
 * @param reportPort {@code ALIQUOT_REPORT_PORT}: TCP port on which the scheduler fetches usage, 0 for any free one; default
 *     9092
 */
record Settings(
        String nodeName,
        NodeLabel nodeLabel,
        int slots,
        VisibleDevices visibleDevices,
        Optional<DeviceInjection> injection,
        Optional<Path> driverRoot,
        Path kubeletRoot,
        boolean labelGpuOperator,
        Optional<String> readyResource,
        Path stateDir,
        Set<Integer> ignoreXids,
        Set<Integer> fatalXids,
        int lowFloor,
        boolean endsUnlimited,
        int metricsPort,
        int reportPort) {
    private static final String READY_RESOURCE = "microsoft.com/directx";
    private static final int LARGEST_PORT = 65_535;
    private static final int ALL = 100;
    // A Node's name is a DNS subdomain (Kubernetes: object names).
    private static final Pattern NODE_NAME = Pattern.compile("[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?");

    /**
     * Reads the environment.
     *
     * @throws FormatException with each invalid setting and what to write instead
     */
    static Settings parse(Map<String, String> environment) {
        var reader = new Reader(environment);
        var nodeName = reader.read("NODE_NAME", "", Settings::nodeName);
        var nodeLabel = reader.read("ALIQUOT_NODE_LABEL", NodeLabel.DEFAULT.toString(), NodeLabel::parse);
        var slots = reader.read(
                "ALIQUOT_SLOTS", Integer.toString(SlotCount.DEFAULT), text -> SlotCount.parse("slots", text));
        var visibleDevices = reader.read("ALIQUOT_VISIBLE_DEVICES", "{uuid}", Settings::visibleDevices);
        var injection = reader.read("ALIQUOT_DEVICE_INJECTION", "auto", Settings::injection);
        var driverRoot = reader.read(
                "ALIQUOT_DRIVER_ROOT",
                "",
                text -> Optional.of(text).filter(root -> !root.isEmpty()).map(Settings::folder));
        var kubeletRoot = reader.read("ALIQUOT_KUBELET_ROOT", "/var/lib/kubelet", Settings::folder);
        var labelGpuOperator = reader.read("ALIQUOT_LABEL_GPU_OPERATOR", "false", Settings::trueOrFalse);
        var readyResource = reader.read("ALIQUOT_READY_RESOURCE", "", Settings::readyResource);
        var stateDir = reader.read("ALIQUOT_STATE_DIR", "/var/lib/aliquot", Settings::folder);
        var ignoreXids = reader.read("ALIQUOT_IGNORE_XIDS", "", Settings::xids);
        var fatalXids = reader.read("ALIQUOT_FATAL_XIDS", "", text -> fatalXids(text, ignoreXids.orElse(Set.of())));
        var lowFloor = reader.read("ALIQUOT_LOW_FLOOR", "5", Settings::percent);
        var endsUnlimited = reader.read("ALIQUOT_UNLIMITED_CONTAINERS", "end", Settings::endOrReport);
        var metricsPort = reader.read("ALIQUOT_METRICS_PORT", "9091", Settings::port);
        var reportPort = reader.read("ALIQUOT_REPORT_PORT", "9092", Settings::port);
        reader.throwIfInvalid();
        return new Settings(
                nodeName.orElseThrow(),
                nodeLabel.orElseThrow(),
                slots.orElseThrow(),
                visibleDevices.orElseThrow(),
                injection.orElseThrow(),
                driverRoot.orElseThrow(),
                kubeletRoot.orElseThrow(),
                labelGpuOperator.orElseThrow(),
                readyResource.orElseThrow(),
                stateDir.orElseThrow(),
                ignoreXids.orElseThrow(),
                fatalXids.orElseThrow(),
                lowFloor.orElseThrow(),
                endsUnlimited.orElseThrow(),
                metricsPort.orElseThrow(),
                reportPort.orElseThrow());
    }

    /** The kubelet's folder of device plugin sockets. */
    Path devicePlugins() {
        return kubeletRoot.resolve("device-plugins");
    }

    /** The kubelet's folder of its PodResources socket. */
    Path podResources() {
        return kubeletRoot.resolve("pod-resources");
    }

    private static String nodeName(String text) {
        if (!NODE_NAME.matcher(text).matches()) {
            throw new FormatException("expected the name of this pod's node, found \"" + text
                    + "\"; set it from the downward API's spec.nodeName");
        }
        return text;
    }

    private static VisibleDevices visibleDevices(String text) {
        if (text.equals(VisibleDevices.NONE)) {
            throw new FormatException(
                    "with " + text + " no container would see a GPU; where the agent is to give containers"
                            + " their GPUs by CDI, set ALIQUOT_DEVICE_INJECTION=cdi");
        }
        return new VisibleDevices(text);
    }

    private static Optional<DeviceInjection> injection(String text) {
        return switch (text) {
            case "auto" -> Optional.empty();
            case "cdi" -> Optional.of(DeviceInjection.CDI);
            case "runtime" -> Optional.of(DeviceInjection.RUNTIME);
            default -> throw new FormatException("expected auto, cdi or runtime, found \"" + text + "\"");
        };
    }

    private static Path folder(String text) {
        if (!text.startsWith("/") || text.indexOf('\0') >= 0) {
            throw new FormatException("expected an absolute path, found \"" + text + "\"");
        }
        return Path.of(text).normalize();
    }

    private static boolean trueOrFalse(String text) {
        if (!text.equals("true") && !text.equals("false")) {
            throw new FormatException("expected true or false, found \"" + text + "\"");
        }
        return text.equals("true");
    }

    private static boolean endOrReport(String text) {
        if (!text.equals("end") && !text.equals("report")) {
            throw new FormatException("expected end or report, found \"" + text + "\"");
        }
        return text.equals("end");
    }

    /** Other GPU resources that the autoscaler knows are other plugins', or not known to all its releases. */
    private static Optional<String> readyResource(String text) {
        if (!text.isEmpty() && !text.equals(READY_RESOURCE)) {
            throw new FormatException("expected " + READY_RESOURCE + " or nothing, found \"" + text + "\"");
        }
        return Optional.of(text).filter(name -> !name.isEmpty());
    }

    private static Set<Integer> xids(String text) {
        Set<Integer> numbers = new TreeSet<>();
        for (String number : text.isEmpty() ? new String[0] : text.split(",", -1)) {
            if (!number.strip().matches("[1-9][0-9]{0,3}")) {
                throw new FormatException("expected XIDs from 1 to " + XidTable.LARGEST
                        + " with commas between them, found \"" + text + "\"");
            }
            numbers.add(Integer.valueOf(number.strip()));
        }
        return Set.copyOf(numbers);
    }

    private static Set<Integer> fatalXids(String text, Set<Integer> ignored) {
        Set<Integer> fatal = xids(text);
        fatal.stream().filter(ignored::contains).findAny().ifPresent(both -> {
            throw new FormatException("XID " + both + " is in ALIQUOT_IGNORE_XIDS, too; remove it from one of the two");
        });
        return fatal;
    }

    private static int percent(String text) {
        return number("percent", ALL, text);
    }

    private static int port(String text) {
        return number("a port", LARGEST_PORT, text);
    }

    private static int number(String what, int largest, String text) {
        int digits = Integer.toString(largest).length();
        if (!text.matches("[0-9]{1," + digits + "}") || Integer.parseInt(text) > largest) {
            throw new FormatException("expected " + what + " from 0 to " + largest + ", found \"" + text + "\"");
        }
        return Integer.parseInt(text);
    }

    /** Collects the errors of all settings, so that one start reports all of them. */
    private static final class Reader {
        private final Map<String, String> environment;
        private final List<String> errors = new ArrayList<>();

        Reader(Map<String, String> environment) {
            this.environment = environment;
        }

        /** Parses one setting; empty if it is invalid. */
        <T> Optional<T> read(String name, String defaultText, Function<String, T> parser) {
            String text = environment.getOrDefault(name, "");
            try {
                return Optional.of(parser.apply(text.isEmpty() ? defaultText : text));
            } catch (FormatException e) {
                errors.add(name + ": " + e.getMessage());
                return Optional.empty();
            }
        }

        void throwIfInvalid() {
            if (!errors.isEmpty()) {
                throw new FormatException(String.join("\n", errors));
            }
        }
    }
}
