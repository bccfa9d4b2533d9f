package io.aliquot.deviceplugin.nvml;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.nodes.GpuKind;
import io.aliquot.api.nodes.Link;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(60)
final class NvmlTest {
    private static final String A100 = "NVIDIA A100-SXM4-80GB;81920;108";

    private final FakeDriver driver = new FakeDriver();

    NvmlTest() throws IOException {}

    @Test
    void listsGpusWithModelMemoryAndLinks() throws Exception {
        driver.install(A100, A100, "NVIDIA T4;15360;40");
        try (Nvml nvml = driver.open()) {
            List<PhysicalGpu> gpus = nvml.gpus().gpus();

            assertThat(gpus).extracting(PhysicalGpu::index).containsExactly(0, 1, 2);
            assertThat(gpus)
                    .extracting(PhysicalGpu::model)
                    .containsExactly("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "NVIDIA T4");
            assertThat(gpus).extracting(PhysicalGpu::memoryMiB).containsExactly(81920, 81920, 15360);
            assertThat(gpus).extracting(PhysicalGpu::leastContextMiB).containsExactly(216, 216, 40);
            assertThat(gpus).extracting(PhysicalGpu::condition).containsOnly(GpuCondition.good());
            assertThat(nvml.gpus().complete()).isTrue();
            assertThat(nvml.driverVersion()).endsWith("-fake");
            assertThat(gpus).extracting(PhysicalGpu::uuid).doesNotHaveDuplicates();
            for (PhysicalGpu gpu : gpus) {
                assertThat(gpu.uuid()).matches("GPU-[0-9a-f-]{36}");
                assertThat(gpu.links()).hasSize(2).doesNotContainKey(gpu.uuid());
                assertThat(gpu.links().values()).allMatch(link -> link.kind() != Link.Kind.NVLINK);
            }
        }
    }

    /** The figures of the simulated driver, after published listings; the percentage is what a user writes as gpucores. */
    @ParameterizedTest
    @CsvSource({
        "NVIDIA A100-SXM4-80GB;81920;108, 1g.10gb, 9856, 14, 15",
        "NVIDIA A100-SXM4-80GB;81920;108, 1g.10gb+me, 9856, 14, 15",
        "NVIDIA A100-SXM4-80GB;81920;108, 1g.20gb, 19968, 14, 15",
        "NVIDIA A100-SXM4-80GB;81920;108, 2g.20gb, 19968, 28, 29",
        "NVIDIA A100-SXM4-80GB;81920;108, 3g.40gb, 40192, 42, 43",
        "NVIDIA A100-SXM4-80GB;81920;108, 4g.40gb, 40192, 56, 58",
        "NVIDIA A100-SXM4-80GB;81920;108, 7g.80gb, 80384, 98, 100",
        "NVIDIA H100 80GB HBM3;81559;132, 1g.10gb, 9810, 16, 15",
        "NVIDIA H100 80GB HBM3;81559;132, 1g.10gb+me, 9810, 16, 15",
        "NVIDIA H100 80GB HBM3;81559;132, 1g.20gb, 19877, 26, 15",
        "NVIDIA H100 80GB HBM3;81559;132, 2g.20gb, 19877, 32, 29",
        "NVIDIA H100 80GB HBM3;81559;132, 3g.40gb, 40015, 60, 43",
        "NVIDIA H100 80GB HBM3;81559;132, 4g.40gb, 40015, 64, 58",
        "NVIDIA H100 80GB HBM3;81559;132, 7g.80gb, 80030, 132, 100"
    })
    void anInstanceIsListedInsteadOfItsCard(
            String card, String profile, int memoryMiB, int multiprocessors, int percent) throws Exception {
        driver.install(card + ";;;;;" + profile, "NVIDIA T4;15360;40");
        try (Nvml nvml = driver.open()) {
            assertThat(nvml.gpus().complete()).isTrue();
            List<PhysicalGpu> gpus = nvml.gpus().gpus();
            assertThat(gpus).extracting(PhysicalGpu::index).containsExactly(100, 1);
            PhysicalGpu gpu = gpus.getFirst();
            assertThat(gpu.uuid()).matches("MIG-[0-9a-f-]{36}");
            assertThat(gpu.model()).endsWith(" MIG " + profile);
            assertThat(gpu.memoryMiB()).isEqualTo(memoryMiB);
            assertThat(gpu.condition()).isEqualTo(GpuCondition.good());
            var instance = (GpuKind.MigInstance) gpu.kind();
            assertThat(instance.card()).startsWith("GPU-");
            assertThat(instance.profile()).isEqualTo(profile);
            assertThat(instance.multiprocessors()).isEqualTo(multiprocessors);
            assertThat(instance.percent()).isEqualTo(percent);
            assertThat(instance.coresOf(percent)).isEqualTo(100);
        }
    }

    @Test
    void instancesOfAnOpenSessionComeAndGoAndHaveTheirOwnProcessesAndXids() throws Exception {
        driver.install(A100 + ";;;;;1g.10gb,2g.20gb");
        var xids = new LinkedBlockingQueue<Nvml.Xid>();
        try (Nvml nvml = driver.open();
                var watcher = new XidWatcher(nvml, xids::add, Duration.ofMillis(100))) {
            assertThat(watcher).isNotNull();
            List<PhysicalGpu> two = nvml.gpus().gpus();
            assertThat(two).hasSize(2);
            String card = ((GpuKind.MigInstance) two.getFirst().kind()).card();
            Process sample =
                    driver.sample(Map.of("CUDA_VISIBLE_DEVICES", two.get(1).uuid()), "alloc", "2900", "hold");
            try (BufferedReader output = sample.inputReader()) {
                assertThat(output.readLine()).contains("alloc 2900 MiB: CUDA_SUCCESS");
                assertThat(nvml.usage(Map.of()))
                        .extracting(usage -> usage.processes().size())
                        .containsExactly(0, 1);
            } finally {
                sample.destroyForcibly().waitFor();
            }

            driver.fail(two.get(1).uuid(), 48);
            assertThat(xids.poll(20, TimeUnit.SECONDS))
                    .isEqualTo(new Nvml.Xid(48, two.get(1).uuid()));
            driver.fail(card, 31);
            assertThat(xids.poll(20, TimeUnit.SECONDS))
                    .isEqualTo(new Nvml.Xid(31, two.get(0).uuid()));
            assertThat(xids.poll(20, TimeUnit.SECONDS))
                    .isEqualTo(new Nvml.Xid(31, two.get(1).uuid()));

            driver.run("hide-uuid", two.getFirst().uuid());
            assertThat(nvml.gpus().complete()).isFalse();
            assertThat(nvml.gpus().gpus())
                    .extracting(PhysicalGpu::uuid)
                    .containsExactly(two.get(1).uuid());
            driver.run("heal", two.getFirst().uuid());
            driver.run("mig-create", card, "3g.40gb");
            assertThat(nvml.gpus().gpus()).extracting(PhysicalGpu::memoryMiB).containsExactly(9856, 19968, 40192);
            driver.run("lose", card);
            assertThat(nvml.gpus().complete()).isFalse();
            assertThat(nvml.gpus().gpus()).isEmpty();
            driver.run("return", card);
            driver.run("reset", card);
            assertThat(nvml.gpus().complete()).isTrue();
            assertThat(nvml.gpus().gpus()).isEmpty();
            driver.run("mig", card, "off");
            assertThat(nvml.gpus().gpus()).extracting(PhysicalGpu::uuid).containsExactly(card);
        }
    }

    /**
     * The files are the output of the program gpu-feature-discovery of github.com/NVIDIA/k8s-device-plugin 0.19.0 on these
     * GPUs of the simulated NVML, sorted and without engines: {@code --oneshot --use-node-feature-api=false --no-timestamp
     * --output-file= --mig-strategy=mixed}, or {@code single}. Its device plugin, given the file /proc/driver/nvidia-caps/mig-minors,
     * serves the same names with {@code mixed}, but counts a profile with {@code +me} under the name without.
     */
    @Test
    void theInstancesAreThoseThatGpuFeatureDiscoveryLists() throws Exception {
        String h100 = "NVIDIA H100 80GB HBM3;81559;132;;;;;";
        driver.install(
                A100 + ";;;;;1g.10gb,1g.10gb,2g.20gb,3g.40gb", h100 + "4g.40gb,1g.20gb,1g.10gb+me", h100 + "7g.80gb");
        var mixed = new TreeMap<String, String>();
        try (Nvml nvml = driver.open()) {
            for (PhysicalGpu gpu : nvml.gpus().gpus()) {
                var instance = (GpuKind.MigInstance) gpu.kind();
                String prefix = "nvidia.com/mig-" + instance.profileInResources() + ".";
                mixed.merge(prefix + "count", "1", (one, more) -> Integer.toString(Integer.parseInt(one) + 1));
                mixed.put(prefix + "memory", Integer.toString(gpu.memoryMiB()));
                mixed.put(prefix + "multiprocessors", Integer.toString(instance.multiprocessors()));
                mixed.put(prefix + "product", gpu.model().replace(' ', '-').replace('+', '.'));
                mixed.put(prefix + "slices.gi", Integer.toString(instance.slices()));
                mixed.put(prefix + "slices.ci", Integer.toString(instance.slices()));
                mixed.put(prefix + "replicas", "1");
                mixed.put(prefix + "sharing-strategy", "none");
            }
        }
        assertThat(mixed).isEqualTo(featureDiscovery("mig-mixed.txt"));

        driver.install(A100 + ";;;;;" + String.join(",", Collections.nCopies(7, "1g.10gb")));
        driver.run("reboot");
        driver.install(A100 + ";;;;;" + String.join(",", Collections.nCopies(7, "1g.10gb")));
        Map<String, String> single = featureDiscovery("mig-single.txt");
        try (Nvml nvml = driver.open()) {
            List<PhysicalGpu> seven = nvml.gpus().gpus().stream()
                    .filter(gpu -> gpu.model().contains("A100"))
                    .toList();
            assertThat(single).containsEntry("nvidia.com/gpu.count", Integer.toString(seven.size()));
            assertThat(seven)
                    .allSatisfy(gpu -> assertThat(single)
                            .containsEntry("nvidia.com/gpu.product", gpu.model().replace(' ', '-'))
                            .containsEntry("nvidia.com/gpu.memory", Integer.toString(gpu.memoryMiB()))
                            .containsEntry("nvidia.com/gpu.multiprocessors", "14")
                            .containsEntry("nvidia.com/gpu.slices.gi", "1"));
        }
    }

    private static Map<String, String> featureDiscovery(String file) throws IOException {
        var labels = new TreeMap<String, String>();
        for (String line : Files.readAllLines(Path.of("src/test/resources/gfd", file))) {
            String[] label = line.split("=", 2);
            labels.put(label[0], label[1]);
        }
        return labels;
    }

    @Test
    void aCardWhoseMigModeIsAboutToChangeHasAFault() throws Exception {
        driver.install(A100);
        try (Nvml nvml = driver.open()) {
            String card = nvml.gpus().gpus().getFirst().uuid();
            Process sample = driver.sample(Map.of(), "alloc", "100", "hold");
            try (BufferedReader output = sample.inputReader()) {
                assertThat(output.readLine()).contains("CUDA_SUCCESS");
                driver.run("mig", card, "on");
                assertThat(faults(nvml, 0))
                        .containsExactly("PROBE MIG mode of its card is to be turned on at the next reset of the card;"
                                + " reset it, or take the change back with nvidia-smi -mig");
            } finally {
                sample.destroyForcibly().waitFor();
            }
        }
    }

    @Test
    void memoryThatTheDriverReservesIsNotSold() throws Exception {
        driver.install("NVIDIA H100 80GB HBM3;80000;132;;;;1559");
        try (Nvml nvml = driver.open()) {
            assertThat(nvml.gpus().gpus()).extracting(PhysicalGpu::memoryMiB).containsExactly(80_000);
        }
    }

    @Test
    void readsWhichProcessesUseAGpu() throws Exception {
        driver.install(A100 + ";256", A100);
        Process process = driver.sample("alloc", "100", "hold");
        try (Nvml nvml = driver.open();
                BufferedReader output = process.inputReader()) {
            assertThat(output.readLine()).contains("alloc 100 MiB");

            List<GpuUsage> usage = nvml.usage(Map.of());

            assertThat(usage).extracting(GpuUsage::uuid).containsExactlyElementsOf(uuids(nvml));
            assertThat(usage.get(0).processes())
                    .containsExactly(new GpuUsage.GpuProcess((int) process.pid(), OptionalLong.of(356L << 20)));
            assertThat(usage.get(0).utilizationPercent()).hasValue(0);
            assertThat(usage.get(0).temperatureCelsius().orElse(0)).isPositive();
            assertThat(usage.get(0).powerMilliwatts().orElse(0)).isPositive();
            assertThat(usage.get(1).processes()).isEmpty();
        } finally {
            process.destroyForcibly().waitFor();
        }
    }

    @Test
    void tellsWhetherProgramsUseAGpuThroughMps() throws Exception {
        driver.install(A100, A100);
        Process process = driver.sample("alloc", "100", "hold");
        try (Nvml nvml = driver.open();
                BufferedReader output = process.inputReader()) {
            assertThat(output.readLine()).contains("alloc 100 MiB");
            assertThat(nvml.gpus().mps()).isFalse();

            driver.run("mps", uuids(nvml).get(1), "on");
            assertThat(nvml.gpus().mps()).as("no program uses the second GPU").isFalse();
            driver.run("mps", uuids(nvml).get(0), "on");
            assertThat(nvml.gpus().mps()).isTrue();
        } finally {
            process.destroyForcibly().waitFor();
        }
    }

    private static List<String> uuids(Nvml nvml) throws NvmlException {
        return nvml.gpus().gpus().stream().map(PhysicalGpu::uuid).toList();
    }

    @Test
    void readsTheUtilizationOfAProcess() throws Exception {
        driver.install(A100);
        Process process = driver.sample("busy", "30");
        try (Nvml nvml = driver.open()) {
            String uuid = uuids(nvml).getFirst();
            long since = 0;
            List<GpuUsage.Utilization> samples = List.of();
            while (samples.isEmpty() || samples.getFirst().percent() < 90) {
                Thread.sleep(200);
                samples = nvml.usage(Map.of(uuid, since)).getFirst().utilization();
                since = samples.isEmpty() ? since : samples.getFirst().endMicros();
            }

            assertThat(samples)
                    .singleElement()
                    .satisfies(sample -> assertThat(sample.pid()).isEqualTo((int) process.pid()));
        } finally {
            process.destroyForcibly().waitFor();
        }
    }

    @Test
    void readsTheNumaNodeFromTheKernelOrElseFromNvml(@TempDir Path sys) throws Exception {
        driver.install(A100 + ";;0", A100 + ";;2", A100 + ";;3");
        pciDevice(sys, "0000:01:00.0", "0x10de", "1");
        pciDevice(sys, "0000:02:00.0", "0x10de", "-1");
        pciDevice(sys, "0000:03:00.0", "0x8086", "0");
        try (Nvml nvml = Nvml.open(driver.library(), sys)) {
            assertThat(nvml.gpus().gpus()).extracting(PhysicalGpu::numa).containsExactly(1, 2, 3);
        }
    }

    private static void pciDevice(Path sys, String address, String vendor, String numa) throws IOException {
        Path device = Files.createDirectories(sys.resolve("bus/pci/devices").resolve(address));
        Files.writeString(device.resolve("vendor"), vendor + "\n");
        Files.writeString(device.resolve("numa_node"), numa + "\n");
    }

    @Test
    void linksAreNvlinkLanesOrElseThePathOverPcie() throws Exception {
        driver.install(A100 + ";;0;1=nvlink4,2=pix", A100 + ";;0;2=nvlink2", A100 + ";;0", A100 + ";;1");
        try (Nvml nvml = driver.open()) {
            assertThat(links(nvml))
                    .containsExactly(
                            List.of("", "nvlink4", "pix", "sys"),
                            List.of("nvlink4", "", "nvlink2", "sys"),
                            List.of("pix", "nvlink2", "", "sys"),
                            List.of("sys", "sys", "sys", ""));
        }
    }

    @Test
    void throughAnNvSwitchEachGpuReachesEachOtherWithAllItsLanes() throws Exception {
        driver.install(A100 + ";;0;1=nvlink12,2=nvlink12", A100 + ";;0;2=nvlink12", A100);
        try (Nvml nvml = driver.open()) {
            assertThat(links(nvml))
                    .containsExactly(
                            List.of("", "nvlink12", "nvlink12"),
                            List.of("nvlink12", "", "nvlink12"),
                            List.of("nvlink12", "nvlink12", ""));
        }
    }

    /** The link from each GPU (row) to each GPU (column). */
    private static List<List<String>> links(Nvml nvml) throws NvmlException {
        List<PhysicalGpu> gpus = nvml.gpus().gpus();
        return gpus.stream()
                .map(from -> gpus.stream()
                        .map(to -> Optional.ofNullable(from.links().get(to.uuid()))
                                .map(Link::print)
                                .orElse(""))
                        .toList())
                .toList();
    }

    @Test
    void aGpuThatFallsOffTheBusIsInaccessibleUntilItIsBack() throws Exception {
        driver.install(A100, A100);
        try (Nvml nvml = driver.open()) {
            String uuid = nvml.gpus().gpus().get(1).uuid();

            driver.run("lose", uuid);
            assertThat(nvml.gpus().gpus().get(0).condition()).isEqualTo(GpuCondition.good());
            assertThat(nvml.gpus().gpus().get(1).condition().accessible()).isFalse();
            assertThat(faults(nvml, 1))
                    .containsExactly(
                            "PROBE it has fallen off the bus or is otherwise inaccessible" + " (NVML: GPU is lost)");

            driver.run("return", uuid);
            assertThat(nvml.gpus().gpus().get(1).condition()).isEqualTo(GpuCondition.good());
        }
    }

    @Test
    void readsWhichRecoveryTheDriverAsksFor() throws Exception {
        driver.install(A100);
        try (Nvml nvml = driver.open()) {
            String uuid = nvml.gpus().gpus().getFirst().uuid();

            driver.run("recover", uuid, "reset");
            assertThat(faults(nvml, 0)).containsExactly("RESET the driver asks for a reset of the GPU");
            driver.run("recover", uuid, "reboot");
            assertThat(faults(nvml, 0)).containsExactly("REBOOT the driver asks for a reboot of the node");
            driver.run("recover", uuid, "drain-p2p");
            assertThat(faults(nvml, 0))
                    .containsExactly("PROBE the driver asks to end the programs that use peer-to-peer access");
            driver.run("recover", uuid, "drain-reset");
            assertThat(faults(nvml, 0)).containsExactly("RESET the driver asks to drain the GPU and to reset it");
            driver.run("recover", uuid, "none");
            assertThat(nvml.gpus().gpus().getFirst().condition()).isEqualTo(GpuCondition.good());

            driver.run("driver", "--without", "recovery-actions");
            driver.run("recover", uuid, "reset");
            assertThat(nvml.gpus().gpus().getFirst().condition().reportsRecovery())
                    .isFalse();
            assertThat(faults(nvml, 0)).isEmpty();
        }
    }

    @Test
    void readsEccErrorsAndRowsToRemap() throws Exception {
        driver.install(A100);
        driver.run("driver", "--without", "recovery-actions");
        try (Nvml nvml = driver.open()) {
            String uuid = nvml.gpus().gpus().getFirst().uuid();

            driver.fail(uuid, 94);
            assertThat(faults(nvml, 0))
                    .containsExactly("RESET it had uncorrectable ECC errors since it was last reset; reset it");
            driver.run("reset", uuid);
            assertThat(faults(nvml, 0)).isEmpty();

            driver.fail(uuid, 63);
            assertThat(faults(nvml, 0)).containsExactly("RESET a row of its memory is to be remapped; reset it");
            driver.run("reset", uuid);
            assertThat(faults(nvml, 0)).isEmpty();

            driver.fail(uuid, 64);
            driver.run("reset", uuid);
            assertThat(faults(nvml, 0))
                    .containsExactly("RESET the remapping of a row of its memory failed; have it replaced");
        }
    }

    @Test
    void aGpuThatIsTooHotIsSlowedDownAndHasNoFault() throws Exception {
        driver.install(A100);
        try (Nvml nvml = driver.open()) {
            String uuid = nvml.gpus().gpus().getFirst().uuid();

            driver.run("hot", uuid);

            GpuCondition hot = nvml.gpus().gpus().getFirst().condition();
            assertThat(hot.slowdowns()).containsExactly(GpuCondition.Slowdown.THERMAL);
            assertThat(hot.faults()).isEmpty();
            driver.run("cool", uuid);
            assertThat(nvml.gpus().gpus().getFirst().condition()).isEqualTo(GpuCondition.good());
        }
    }

    @Test
    void aGpuWhoseComputeModeAllowsOneProgramHasAFaultUntilTheModeIsBack() throws Exception {
        driver.install(A100, A100);
        try (Nvml nvml = driver.open()) {
            String uuid = nvml.gpus().gpus().getFirst().uuid();

            driver.run("exclusive", uuid, "on");

            assertThat(faults(nvml, 0))
                    .containsExactly("PROBE its compute mode lets one program at a time use it, as NVIDIA's MPS daemon"
                            + " sets it; end the daemon if there is one; set it back with nvidia-smi -c DEFAULT");
            assertThat(faults(nvml, 1)).isEmpty();
            driver.run("exclusive", uuid, "off");
            assertThat(faults(nvml, 0)).isEmpty();
        }
    }

    @Test
    void aGpuThatDoesNotReturnItsUuidMakesTheListingIncomplete() throws Exception {
        driver.install(A100, A100);
        try (Nvml nvml = driver.open()) {
            driver.run("hide-uuid", nvml.gpus().gpus().getFirst().uuid());

            assertThat(nvml.gpus().gpus()).hasSize(1);
            assertThat(nvml.gpus().complete()).isFalse();
        }
    }

    private static List<String> faults(Nvml nvml, int index) throws NvmlException {
        return nvml.gpus().gpus().get(index).condition().faults().stream()
                .map(fault -> fault.recovery() + " " + fault.reason())
                .toList();
    }

    @Test
    void listsNoGpusOnANodeWithoutAny() throws Exception {
        try (Nvml nvml = driver.open()) {
            assertThat(nvml.gpus().gpus()).isEmpty();
        }
    }

    @Test
    void aMissingLibraryIsReportedWithWhatToDo() {
        assertThatThrownBy(() -> Nvml.open("/nowhere/libnvidia-ml.so.1", Path.of("/sys")))
                .isInstanceOf(NvmlException.class)
                .hasMessageContaining("cannot open /nowhere/libnvidia-ml.so.1")
                .hasMessageContaining("install NVIDIA's driver")
                .hasMessageContaining("gpu=on");
    }

    /** A link that leads out of the root, as those of Debian's alternatives do, leads nowhere in the agent's container. */
    @ParameterizedTest
    @ValueSource(
            strings = {
                "usr/lib64",
                "usr/lib/x86_64-linux-gnu",
                "usr/lib/x86_64-linux-gnu/nvidia/current",
                "usr/lib",
                "lib"
            })
    void theLibraryIsFoundBelowTheDriversRoot(String libraries, @TempDir Path root) throws Exception {
        driver.install(A100);
        Path dangling = root.resolve("usr/lib/x86_64-linux-gnu").resolve(Nvml.LIBRARY);
        Path library = root.resolve(libraries).resolve(Nvml.LIBRARY);
        Files.createDirectories(library.getParent());
        Files.createDirectories(dangling.getParent());
        Files.copy(Path.of(driver.library()), library.resolveSibling("libnvidia-ml.so.580.95.05"));
        Files.createSymbolicLink(library, Path.of("libnvidia-ml.so.580.95.05"));
        if (!dangling.equals(library)) {
            Files.createSymbolicLink(dangling, Path.of("/etc/alternatives/nowhere--libnvidia-ml.so.1"));
        }

        try (Nvml nvml = Nvml.openBelow(root, Path.of("/sys"))) {
            assertThat(nvml.gpus().gpus()).hasSize(1);
        }
    }

    @Test
    void aDriverRootWithoutADriverIsReportedWithWhatToSet(@TempDir Path root) {
        assertThatThrownBy(() -> Nvml.openBelow(root, Path.of("/sys")))
                .isInstanceOf(NvmlException.class)
                .hasMessageContaining("devicePlugin.driverRoot")
                .hasMessageContaining("usr/lib/x86_64-linux-gnu")
                .hasMessageContaining("/run/nvidia/driver");
    }

    @Test
    void aLibraryOtherThanNvmlIsReported() {
        assertThatThrownBy(() -> Nvml.open("libc.so.6", Path.of("/sys")))
                .isInstanceOf(NvmlException.class)
                .hasMessageContaining("cannot open libc.so.6");
    }

    @Test
    void reportsEachXidWithItsGpu() throws Exception {
        driver.install(A100, A100);
        var xids = new LinkedBlockingQueue<Nvml.Xid>();
        try (Nvml nvml = driver.open();
                var watcher = new XidWatcher(nvml, xids::add, Duration.ofMillis(100))) {
            String second = nvml.gpus().gpus().get(1).uuid();
            assertThat(watcher).isNotNull();

            driver.fail(second, 48);
            assertThat(xids.poll(20, TimeUnit.SECONDS)).isEqualTo(new Nvml.Xid(48, second));

            driver.run("hide-uuid", second);
            driver.fail(second, 31);
            assertThat(xids.poll(20, TimeUnit.SECONDS)).isEqualTo(new Nvml.Xid(31, ""));
        }
    }
}
