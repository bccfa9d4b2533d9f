package io.aliquot.deviceplugin.usage;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.aliquot.api.shim.Region;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport.Finding;
import io.aliquot.api.usage.UsageReport.Problem.LargeRegion;
import io.aliquot.deviceplugin.kubelet.DeviceHolders;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.io.TempDir;

/** On real files. */
@Timeout(value = 30, threadMode = ThreadMode.SEPARATE_THREAD)
final class LargeRegionsTest {
    private static final int MIB = 1 << 20;
    private static final PodContainer MAIN = new PodContainer("team", "train", "", "main");

    private final Path slots;
    private final Path region;
    private DeviceHolders holders = new DeviceHolders.Known(List.of(
            new DeviceHolders.Holder("team/train", "main", "aliquot.io/vgpu", List.of("slot-004", "slot-003"))));
    private long now;
    private final RecentFindings findings = new RecentFindings(() -> now);
    private final LargeRegions regions;

    LargeRegionsTest(@TempDir Path state) throws IOException {
        slots = Files.createDirectory(state.resolve("slots"));
        region = Files.write(slots.resolve("slot-003"), Region.fresh());
        regions = new LargeRegions(state, () -> holders, findings);
    }

    @Test
    void aRegionThatItsContainerEnlargedIsCutInOneRunAndItsPodNamed() throws IOException {
        try (var file = FileChannel.open(region, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            var mapped = file.map(MapMode.READ_WRITE, 0, Region.SIZE);
            Files.write(region, new byte[32 * MIB], StandardOpenOption.APPEND);

            regions.run();

            assertThat(region).hasBinaryContent(Region.fresh());
            assertThat(findings.list())
                    .containsExactly(new Finding(MAIN, new LargeRegion(Region.SIZE + 32L * MIB, true)));
            mapped.put(Region.SIZE - 1, (byte) 7); // the processes that map it lose nothing
            assertThat(Files.readAllBytes(region)[Region.SIZE - 1]).isEqualTo((byte) 7);
        }
        now += Duration.ofMinutes(3).toNanos();
        regions.run();
        assertThat(findings.list()).isEmpty();
    }

    @Test
    void aRegionWhosePermissionsItsContainerTookAwayIsCut() throws IOException {
        Files.write(region, new byte[MIB], StandardOpenOption.APPEND);
        Files.setPosixFilePermissions(region, Set.of());

        regions.run();

        assertThat(region).hasSize(Region.SIZE);
    }

    /** Root in a container can give the file to another user; here, an attribute keeps the agent from writing it. */
    @Test
    void theReportSaysThatARegionCannotBeCut() throws Exception {
        assumeTrue(run("chattr", "+i", region.toString()) == 0);
        try {
            regions.run();
            assertThat(findings.list()).containsExactly(new Finding(MAIN, new LargeRegion(Region.SIZE, false)));
        } finally {
            assertThat(run("chattr", "-i", region.toString())).isZero();
        }
    }

    /** {@code fallocate --keep-size}: the length does not show it. */
    @Test
    void spaceBeyondTheEndOfARegionIsFreed() throws Exception {
        regions.run();
        long usual = blocks(region);
        assumeTrue(run("fallocate", "--keep-size", "--length", "50M", region.toString()) == 0);
        assertThat(region).hasSize(Region.SIZE);
        assertThat(blocks(region)).isGreaterThan(usual + 50 * MIB / 512 / 2);

        regions.run();

        assertThat(blocks(region)).isLessThan(usual + MIB / 512);
        assertThat(region).hasBinaryContent(Region.fresh());
    }

    @Test
    void whatRemainsOfALargeRegionAfterItsPodIsRemoved() throws IOException {
        Files.write(region, new byte[MIB], StandardOpenOption.APPEND);
        Files.write(slots.resolve("slot-005"), Region.fresh());
        holders = new DeviceHolders.Unavailable("the kubelet restarts");
        regions.run();
        assertThat(region).hasSize(Region.SIZE);
        Files.write(region, new byte[MIB], StandardOpenOption.APPEND);
        holders = new DeviceHolders.Known(List.of());

        regions.run();

        assertThat(region).doesNotExist();
        assertThat(slots.resolve("slot-005")).hasBinaryContent(Region.fresh());
    }

    @Test
    void theRunSurvivesAnySizeAndAnyKindOfFile() throws Exception {
        Path elsewhere = Files.write(slots.resolve("elsewhere"), new byte[2 * MIB]);
        Files.createSymbolicLink(slots.resolve("slot-000"), elsewhere);
        assertThat(run("mkfifo", slots.resolve("slot-001").toString())).isZero();
        Files.createDirectory(slots.resolve("slot-002"));
        Files.write(slots.resolve("slot-005"), new byte[0]);
        Files.write(slots.resolve("slot-006"), Arrays.copyOf(Region.fresh(), 100));
        try (var hole = new RandomAccessFile(region.toFile(), "rw")) {
            hole.setLength(1L << 40);
        }

        regions.run();
        regions.run();

        assertThat(elsewhere).hasSize(2 * MIB);
        assertThat(slots.resolve("slot-005")).isEmptyFile();
        assertThat(slots.resolve("slot-006")).hasSize(100);
        assertThat(region).hasSize(Region.SIZE);
        assertThat(findings.list()).containsExactly(new Finding(MAIN, new LargeRegion(1L << 40, true)));
    }

    private static int run(String... command) throws Exception {
        return new ProcessBuilder(command).start().waitFor();
    }

    private static long blocks(Path file) throws Exception {
        Process stat = new ProcessBuilder("stat", "--format", "%b", file.toString()).start();
        return Long.parseLong(new String(stat.getInputStream().readAllBytes(), StandardCharsets.US_ASCII).strip());
    }
}
