package io.aliquot.deviceplugin.nvml;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.Link;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Semaphore;
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
            List<PhysicalGpu> gpus = nvml.gpus();

            assertThat(gpus).extracting(PhysicalGpu::index).containsExactly(0, 1, 2);
            assertThat(gpus)
                    .extracting(PhysicalGpu::model)
                    .containsExactly("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "NVIDIA T4");
            assertThat(gpus).extracting(PhysicalGpu::memoryMiB).containsExactly(81920, 81920, 15360);
            assertThat(gpus).extracting(PhysicalGpu::health).containsOnly(new GpuHealth.Healthy());
            assertThat(gpus).extracting(PhysicalGpu::uuid).doesNotHaveDuplicates();
            for (PhysicalGpu gpu : gpus) {
                assertThat(gpu.uuid()).matches("GPU-[0-9a-f-]{36}");
                assertThat(gpu.links()).hasSize(2).doesNotContainKey(gpu.uuid());
                assertThat(gpu.links().values()).allMatch(link -> link.kind() != Link.Kind.NVLINK);
            }
        }
    }

    @Test
    void readsTheNumaNodeFromTheKernelOrElseFromNvml(@TempDir Path sys) throws Exception {
        driver.install(A100 + ";;0", A100 + ";;2", A100 + ";;3");
        pciDevice(sys, "0000:01:00.0", "0x10de", "1");
        pciDevice(sys, "0000:02:00.0", "0x10de", "-1");
        pciDevice(sys, "0000:03:00.0", "0x8086", "0");
        try (Nvml nvml = Nvml.open(driver.library(), sys)) {
            assertThat(nvml.gpus()).extracting(PhysicalGpu::numa).containsExactly(1, 2, 3);
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
        List<PhysicalGpu> gpus = nvml.gpus();
        return gpus.stream()
                .map(from -> gpus.stream()
                        .map(to -> Optional.ofNullable(from.links().get(to.uuid()))
                                .map(Link::print)
                                .orElse(""))
                        .toList())
                .toList();
    }

    @Test
    void aGpuThatFallsOffTheBusIsUnhealthyUntilItIsBack() throws Exception {
        driver.install(A100, A100);
        try (Nvml nvml = driver.open()) {
            String uuid = nvml.gpus().get(1).uuid();

            driver.fail(uuid, 79);
            assertThat(nvml.gpus().get(0).health()).isEqualTo(new GpuHealth.Healthy());
            assertThat(nvml.gpus().get(1).health().unhealthyReason())
                    .hasValueSatisfying(reason -> assertThat(reason).contains("fallen off the bus"));

            driver.heal(uuid);
            assertThat(nvml.gpus().get(1).health()).isEqualTo(new GpuHealth.Healthy());
        }
    }

    @Test
    void listsNoGpusOnANodeWithoutAny() throws Exception {
        try (Nvml nvml = driver.open()) {
            assertThat(nvml.gpus()).isEmpty();
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
    void aGpuStaysUnhealthyAfterACriticalXid() throws Exception {
        driver.install(A100, A100);
        var metrics = new AgentMetrics();
        var changed = new Semaphore(0);
        try (Nvml nvml = driver.open();
                var watcher = new XidWatcher(nvml, metrics, changed::release)) {
            String first = nvml.gpus().get(0).uuid();
            String second = nvml.gpus().get(1).uuid();
            Thread.sleep(Duration.ofMillis(300).toMillis()); // until the watcher listens

            driver.fail(second, 48);

            assertThat(changed.tryAcquire(20, TimeUnit.SECONDS)).isTrue();
            driver.heal(second);
            assertThat(watcher.failure(second))
                    .hasValueSatisfying(reason -> assertThat(reason).contains("XID error 48"));
            assertThat(watcher.failure(first)).isEmpty();
            assertThat(metrics.print())
                    .contains("aliquot_agent_xid_errors_total{gpu=\"" + second + "\",xid=\"48\"} 1.0");
        }
    }

    @Test
    void aGpuStaysHealthyAfterTheXidOfAnApplication() throws Exception {
        driver.install(A100);
        var metrics = new AgentMetrics();
        try (Nvml nvml = driver.open();
                var watcher = new XidWatcher(nvml, metrics, () -> {})) {
            String uuid = nvml.gpus().get(0).uuid();
            Thread.sleep(Duration.ofMillis(300).toMillis()); // until the watcher listens

            driver.fail(uuid, 31);

            long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            while (!metrics.print().contains("xid=\"31\"") && System.nanoTime() - deadline < 0) {
                Thread.sleep(20);
            }
            assertThat(metrics.print()).contains("xid=\"31\"} 1.0");
            assertThat(watcher.failure(uuid)).isEmpty();
        }
    }
}
