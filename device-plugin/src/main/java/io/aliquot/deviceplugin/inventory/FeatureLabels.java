package io.aliquot.deviceplugin.inventory;

import io.aliquot.deviceplugin.nvml.NodeFeatures;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * The labels that NVIDIA's GPU feature discovery (GFD) would give a node, with GFD's values: whole GPUs without MIG strategy and
 * without sharing, because Aliquot's shares are another resource (NVIDIA/k8s-device-plugin 0.19.0, internal/lm). Of several
 * models on one node GFD labels an arbitrary one; here it is that of the GPU with the lowest index.
 */
final class FeatureLabels {
    private static final Pattern NOT_ALLOWED = Pattern.compile("[^A-Za-z0-9-_. ]");
    private static final Pattern BLANKS = Pattern.compile(" +");

    /** Of a label (k8s.io/apimachinery, pkg/util/validation). The API server would refuse all labels for one value. */
    private static final Pattern VALUE = Pattern.compile("(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?");

    private static final String UNKNOWN = "unknown";
    private static final int THOUSAND = 1000;

    private FeatureLabels() {}

    /** The labels, without those whose value is unknown or no value of a label; none if the GPUs are unknown. */
    static Map<String, String> of(NodeFeatures node) {
        Map<String, String> labels = new TreeMap<>();
        if (!node.gpus().isEmpty()) {
            addVersions(labels, node);
            addGpus(labels, node.gpus());
            put(labels, "gpu.machine", node.machine().isEmpty() ? UNKNOWN : sanitized(node.machine()));
        }
        labels.values().removeIf(value -> !VALUE.matcher(value).matches());
        return labels;
    }

    private static void put(Map<String, String> labels, String name, Object value) {
        labels.put("nvidia.com/" + name, String.valueOf(value));
    }

    private static void addVersions(Map<String, String> labels, NodeFeatures node) {
        String[] driver = node.driver().split("\\.", -1);
        if (driver.length == 2 || driver.length == 3) {
            String revision = driver.length == 3 ? driver[2] : "";
            put(labels, "cuda.driver-version.full", node.driver());
            put(labels, "cuda.driver-version.major", driver[0]);
            put(labels, "cuda.driver-version.minor", driver[1]);
            put(labels, "cuda.driver-version.revision", revision);
            put(labels, "cuda.driver.major", driver[0]);
            put(labels, "cuda.driver.minor", driver[1]);
            put(labels, "cuda.driver.rev", revision);
        }
        int major = node.cuda() / THOUSAND;
        int minor = node.cuda() % THOUSAND / 10;
        put(labels, "cuda.runtime-version.full", major + "." + minor);
        put(labels, "cuda.runtime-version.major", major);
        put(labels, "cuda.runtime-version.minor", minor);
        put(labels, "cuda.runtime.major", major);
        put(labels, "cuda.runtime.minor", minor);
    }

    private static void addGpus(Map<String, String> labels, List<NodeFeatures.Gpu> gpus) {
        NodeFeatures.Gpu first = gpus.getFirst();
        put(labels, "gpu.product", sanitized(first.model()));
        put(
                labels,
                "gpu.count",
                gpus.stream().filter(gpu -> gpu.model().equals(first.model())).count());
        if (first.memoryMiB() > 0) {
            put(labels, "gpu.memory", first.memoryMiB());
        }
        if (first.computeMajor() > 0) {
            put(labels, "gpu.family", family(first.computeMajor(), first.computeMinor()));
            put(labels, "gpu.compute.major", first.computeMajor());
            put(labels, "gpu.compute.minor", first.computeMinor());
        }
        put(labels, "gpu.mode", mode(gpus));
        // For GFD, GPUs in MIG mode are not the resource nvidia.com/gpu.
        boolean whole =
                gpus.stream().anyMatch(gpu -> gpu.model().equals(first.model()) && gpu.mig() != NodeFeatures.Mig.ON);
        put(labels, "gpu.replicas", whole ? 1 : 0);
        put(labels, "gpu.sharing-strategy", "none");
        put(labels, "mig.capable", gpus.stream().anyMatch(gpu -> gpu.mig() != NodeFeatures.Mig.NOT_CAPABLE));
        // True would start the daemon of NVIDIA's MPS, whose DaemonSet selects nodes by it.
        put(labels, "mps.capable", false);
        put(labels, "vgpu.present", gpus.stream().anyMatch(NodeFeatures.Gpu::virtual));
    }

    private static String sanitized(String text) {
        return BLANKS.matcher(NOT_ALLOWED.matcher(text).replaceAll("").strip()).replaceAll("-");
    }

    private static String mode(List<NodeFeatures.Gpu> gpus) {
        Set<String> classes = gpus.stream().map(NodeFeatures.Gpu::pciClass).collect(Collectors.toSet());
        if (classes.equals(Set.of("0x030000"))) { // VGA controller
            return "graphics";
        }
        return classes.equals(Set.of("0x030200")) ? "compute" : UNKNOWN; // 3D controller
    }

    private static String family(int major, int minor) {
        return switch (major) {
            case 1 -> "tesla";
            case 2 -> "fermi";
            case 3 -> "kepler";
            case 5 -> "maxwell";
            case 6 -> "pascal";
            case 7 -> minor < 5 ? "volta" : "turing";
            case 8 -> minor < 9 ? "ampere" : "ada-lovelace";
            case 9 -> "hopper";
            case 10, 12 -> "blackwell";
            default -> "undefined";
        };
    }
}
