package io.aliquot.deviceplugin.inventory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.entry;

import io.aliquot.api.foreign.FeatureDiscovery;
import io.aliquot.api.names.Labels;
import io.aliquot.deviceplugin.nvml.FakeDriver;
import io.aliquot.deviceplugin.nvml.NodeFeatures;
import io.aliquot.deviceplugin.nvml.NodeFeatures.Mig;
import io.aliquot.deviceplugin.nvml.Nvml;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

final class FeatureLabelsTest {
    private static final NodeFeatures.Gpu A100 = gpu("NVIDIA A100-SXM4-80GB", 8, 0, Mig.OFF);
    private static final NodeFeatures.Gpu T4 = gpu("Tesla T4", 7, 5, Mig.NOT_CAPABLE);

    /**
     * Each file is the output of the program gpu-feature-discovery of github.com/NVIDIA/k8s-device-plugin 0.19.0 on the
     * simulated NVML ({@code --oneshot --use-node-feature-api=false --no-timestamp --machine-type-file}, sorted). Without a PCI
     * device in sysfs it prints the mode unknown. {@code CoexistenceIT} compares the labels of a node of the lab with those that
     * the program prints there.
     */
    @ParameterizedTest
    @CsvSource({
        "NVIDIA A100-SXM4-80GB, 81920, 108, 4",
        "NVIDIA H200, 143771, 132, 1",
        "NVIDIA H100 80GB HBM3, 81559, 132, 8",
        "NVIDIA B200, 183359, 148, 2"
    })
    void areThoseThatGpuFeatureDiscoveryPrints(
            String model, String memory, String multiprocessors, int count, @TempDir Path sys) throws Exception {
        Files.createDirectories(sys.resolve("class/dmi/id"));
        Files.writeString(sys.resolve("class/dmi/id/product_name"), "PowerEdge XE9680 (Rack+8)\n");
        var driver = new FakeDriver();
        var gpus = new String[count];
        Arrays.fill(gpus, String.join(";", model, memory, multiprocessors));
        driver.install(gpus);
        Map<String, String> printed = new TreeMap<>();
        Files.readAllLines(Path.of("src/test/resources/gfd", model.replace(' ', '-') + ".txt"))
                .forEach(line -> {
                    String[] label = line.split("=", 2);
                    printed.put(label[0], label[1]);
                });

        try (Nvml nvml = Nvml.open(driver.library(), sys)) {
            assertThat(FeatureLabels.of(nvml.gpus().features())).isEqualTo(printed);
        }
        assertThat(printed.keySet()).containsExactlyElementsOf(FeatureDiscovery.LABELS);
    }

    @Test
    void nvmlReadsTheClassOfThePciDevice(@TempDir Path sys) throws Exception {
        var driver = new FakeDriver();
        driver.install("NVIDIA A30;24576;56");
        Path device = Files.createDirectories(sys.resolve("bus/pci/devices/0000:01:00.0"));
        Files.writeString(device.resolve("class"), "0x030200\n");

        try (Nvml nvml = Nvml.open(driver.library(), sys)) {
            assertThat(FeatureLabels.of(nvml.gpus().features())).containsEntry("nvidia.com/gpu.mode", "compute");
        }
    }

    @ParameterizedTest
    @CsvSource({
        "1, 3, tesla",
        "2, 0, fermi",
        "3, 7, kepler",
        "5, 2, maxwell",
        "6, 1, pascal",
        "7, 0, volta",
        "7, 2, volta",
        "7, 5, turing",
        "8, 0, ampere",
        "8, 6, ampere",
        "8, 9, ada-lovelace",
        "9, 0, hopper",
        "10, 3, blackwell",
        "11, 0, undefined",
        "12, 0, blackwell"
    })
    void familyFollowsTheComputeCapability(int major, int minor, String family) {
        assertThat(labels(gpu("model", major, minor, Mig.NOT_CAPABLE))).containsEntry("nvidia.com/gpu.family", family);
    }

    @ParameterizedTest
    @CsvSource({
        "0x030200, 0x030200, compute",
        "0x030000, 0x030000, graphics",
        "0x030200, 0x030000, unknown",
        "0x030200, '', unknown",
        "0x040300, 0x040300, unknown"
    })
    void modeIsThatOfAllGpus(String first, String second, String mode) {
        var one = new NodeFeatures.Gpu("m", 1, 8, 0, Mig.NOT_CAPABLE, first, false);
        var other = new NodeFeatures.Gpu("m", 1, 8, 0, Mig.NOT_CAPABLE, second, false);

        assertThat(labels(one, other)).containsEntry("nvidia.com/gpu.mode", mode);
    }

    @Test
    void ofSeveralModelsTheFirstIsNamedAndCounted() {
        assertThat(labels(T4, A100, A100))
                .contains(
                        entry("nvidia.com/gpu.product", "Tesla-T4"),
                        entry("nvidia.com/gpu.count", "1"),
                        entry("nvidia.com/mig.capable", "true"));
    }

    /** GFD without a MIG strategy, internal/lm/mig-strategy.go, newGPULabelers. */
    @Test
    void gpusInMigModeAreCountedAndHaveNoReplicasOfTheirOwn() {
        NodeFeatures.Gpu divided = gpu("NVIDIA A100-SXM4-80GB", 8, 0, Mig.ON);

        assertThat(labels(divided, divided))
                .contains(entry("nvidia.com/gpu.count", "2"), entry("nvidia.com/gpu.replicas", "0"));
        assertThat(labels(divided, A100))
                .contains(entry("nvidia.com/gpu.count", "2"), entry("nvidia.com/gpu.replicas", "1"));
    }

    @Test
    void whatIsUnknownOrNoLabelValueIsLeftOut() {
        var nameless = new NodeFeatures.Gpu("x".repeat(64), 0, 0, 0, Mig.NOT_CAPABLE, "", false);
        var node = new NodeFeatures("580", 13_010, "Standard PC (Q35 + ICH9, 2009).", List.of(nameless));

        assertThat(FeatureLabels.of(node))
                .containsEntry("nvidia.com/cuda.runtime-version.full", "13.1")
                .doesNotContainKeys(
                        "nvidia.com/gpu.product",
                        "nvidia.com/gpu.machine",
                        "nvidia.com/gpu.memory",
                        "nvidia.com/gpu.family",
                        "nvidia.com/gpu.compute.major",
                        "nvidia.com/cuda.driver-version.full",
                        "nvidia.com/cuda.driver.major");
        assertThat(FeatureLabels.of(new NodeFeatures("580.1", 13_010, "Standard PC (Q35 + ICH9, 2009)", List.of(T4))))
                .containsEntry("nvidia.com/gpu.machine", "Standard-PC-Q35-ICH9-2009")
                .containsEntry("nvidia.com/cuda.driver.rev", "");
        assertThat(FeatureLabels.of(NodeFeatures.UNKNOWN)).isEmpty();
    }

    /**
     * The GPU Operator runs its MIG manager on a node of its own where this is true. So a node that the Operator handles gets
     * none of the labels ({@code FeatureLabelPublisherTest}).
     */
    @Test
    void theGpuOperatorTakesMigCapableNodesForSuch() {
        assertThat(hasMigCapableGpu(labels(A100))).isTrue();
        assertThat(hasMigCapableGpu(labels(T4))).isFalse();
        assertThat(hasMigCapableGpu(labels(T4, A100))).isTrue();
        assertThat(hasMigCapableGpu(labels(gpu("NVIDIA A30", 8, 0, Mig.NOT_CAPABLE))))
                .as("the label goes before the model's name")
                .isFalse();
        assertThat(hasMigCapableGpu(labels(new NodeFeatures.Gpu("GRID A100D-20C", 1, 8, 0, Mig.NOT_CAPABLE, "", true))))
                .isFalse();
        assertThat(hasMigCapableGpu(Map.of())).isFalse();
        assertThat(hasMigCapableGpu(Map.of("nvidia.com/gpu.product", "NVIDIA-H100-PCIe")))
                .isTrue();
    }

    /** The decisions of github.com/NVIDIA/gpu-operator, a22dbf6, controllers/state_manager.go, line 341, hasMIGCapableGPU. */
    private static boolean hasMigCapableGpu(Map<String, String> labels) {
        if (!labels.getOrDefault("nvidia.com/vgpu.host-driver-version", "").isEmpty()) {
            return false;
        }
        String capable = labels.get("nvidia.com/mig.capable");
        String product = labels.getOrDefault("nvidia.com/gpu.product", "").toLowerCase(Locale.ROOT);
        return capable == null
                ? List.of("h100", "a100", "a30").stream().anyMatch(product::contains)
                : capable.equals("true");
    }

    /**
     * By which labels NVIDIA's charts and operands select nodes:
     *
     * <ul>
     *   <li>github.com/NVIDIA/k8s-device-plugin 0.19.0, deployments/helm/nvidia-device-plugin, values.yaml, line 79, affinity:
     *       one of the first three; templates/daemonset-mps-control-daemon.yml, line 208: the fourth as well
     *   <li>github.com/NVIDIA/gpu-operator a22dbf6, assets: nodeSelector of each operand, nvidia.com/gpu.deploy.…: "true", and the
     *       fourth; controllers/state_manager.go, gpuNodeLabels: the PCI labels of NFD
     *   <li>NVIDIA's MIG manager: nvidia.com/mig.config
     * </ul>
     */
    private static final Map<String, String> SELECTORS = Map.of(
            "feature.node.kubernetes.io/pci-10de.present", "true",
            "feature.node.kubernetes.io/cpu-model.vendor_id", "NVIDIA",
            "nvidia.com/gpu.present", "true",
            "nvidia.com/mps.capable", "true",
            "feature.node.kubernetes.io/pci-0302_10de.present", "true",
            "feature.node.kubernetes.io/pci-0300_10de.present", "true");

    private static final Set<String> SELECTING_PREFIXES =
            Set.of("nvidia.com/gpu.deploy.", "nvidia.com/mig.config", "nvidia.com/gpu.workload.");

    @Test
    void noChartOrOperandOfNvidiasSelectsTheNodeByThem() {
        Map<String, String> labels = new HashMap<>(labels(A100, T4));
        // What else the agent and the administrator of a node of Aliquot's write.
        labels.putAll(Map.of("gpu", "on", Labels.NODE_AGENT, Labels.NODE_AGENT_ON));

        SELECTORS.forEach((name, value) -> assertThat(labels).doesNotContainEntry(name, value));
        assertThat(labels.keySet())
                .noneMatch(name -> SELECTING_PREFIXES.stream().anyMatch(name::startsWith));
    }

    private static Map<String, String> labels(NodeFeatures.Gpu... gpus) {
        return FeatureLabels.of(new NodeFeatures("580.159.04", 13_000, "", List.of(gpus)));
    }

    private static NodeFeatures.Gpu gpu(String model, int major, int minor, Mig mig) {
        return new NodeFeatures.Gpu(model, 81_920, major, minor, mig, "0x030200", false);
    }
}
