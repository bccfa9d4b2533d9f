package io.aliquot.deviceplugin.nvml;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.names.Link;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

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
                var watcher = new XidWatcher(nvml, xids::add)) {
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
