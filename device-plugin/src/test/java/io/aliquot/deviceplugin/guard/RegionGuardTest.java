package io.aliquot.deviceplugin.guard;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.aliquot.api.shim.Region;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport.Finding;
import io.aliquot.api.usage.UsageReport.Problem;
import io.aliquot.api.usage.UsageReport.Problem.LargeRegion;
import io.aliquot.deviceplugin.files.Lease;
import io.aliquot.deviceplugin.files.SlotFiles;
import io.aliquot.deviceplugin.kubelet.DeviceHolders;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.testing.Await;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.UserDefinedFileAttributeView;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** On real files. */
@Timeout(value = 30, threadMode = ThreadMode.SEPARATE_THREAD)
final class RegionGuardTest {
    private static final int MIB = 1 << 20;
    private static final PodContainer MAIN = new PodContainer("team", "train", "", "main");

    private final Path state;
    private final Path slots;
    private final Path region;
    private DeviceHolders holders = new DeviceHolders.Known(List.of(
            new DeviceHolders.Holder("team/train", "main", "aliquot.io/vgpu", List.of("slot-004", "slot-003"))));
    private long now;
    private final AtomicInteger asked = new AtomicInteger();
    private final RecentFindings findings = new RecentFindings(() -> now);
    private final AgentMetrics metrics = new AgentMetrics();
    private RegionGuard guard;

    RegionGuardTest(@TempDir Path state) throws IOException {
        this.state = state;
        slots = Files.createDirectory(state.resolve("slots"));
        region = Files.write(slots.resolve("slot-003"), Region.fresh());
        guard = guard(state);
    }

    private RegionGuard guard(Path folder) throws IOException {
        return new RegionGuard(SlotFiles.open(folder), this::ask, findings, metrics, () -> now);
    }

    private DeviceHolders ask() {
        asked.incrementAndGet();
        return holders;
    }

    @AfterEach
    void stop() {
        guard.close();
    }

    private void look() {
        guard.look();
        Await.await(guard::isIdle);
    }

    @Test
    void aRegionThatItsContainerEnlargedIsCutInOneLookAndItsPodNamed() throws IOException {
        try (var file = FileChannel.open(region, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            var mapped = file.map(MapMode.READ_WRITE, 0, Region.SIZE);
            Files.write(region, new byte[32 * MIB], StandardOpenOption.APPEND);

            look();

            assertThat(region).hasBinaryContent(Region.fresh());
            assertThat(findings.list())
                    .containsExactly(new Finding(MAIN, new LargeRegion(Region.SIZE + 32L * MIB, true)));
            mapped.put(Region.SIZE - 1, (byte) 7); // the processes that map it lose nothing
            assertThat(Files.readAllBytes(region)[Region.SIZE - 1]).isEqualTo((byte) 7);
        }
        guard.look();
        assertThat(metrics.print()).contains("aliquot_agent_abused_files 1.0");
        now += Duration.ofMinutes(3).toNanos();
        guard.look();
        assertThat(findings.list()).isEmpty();
        assertThat(metrics.print()).contains("aliquot_agent_abused_files 0.0");
    }

    @Test
    void aRegionWhosePermissionsItsContainerTookAwayIsCut() throws IOException {
        Files.write(region, new byte[MIB], StandardOpenOption.APPEND);
        Files.setPosixFilePermissions(region, Set.of());

        look();

        assertThat(region).hasSize(Region.SIZE);
    }

    /** An attribute keeps the agent from changing it. */
    @Test
    void theReportSaysThatARegionCannotBeCut() throws Exception {
        Files.write(region, new byte[MIB], StandardOpenOption.APPEND);
        assumeTrue(run("chattr", "+i", region.toString()) == 0);
        try {
            look();
            assertThat(findings.list()).containsExactly(new Finding(MAIN, new LargeRegion(Region.SIZE + MIB, false)));
        } finally {
            assertThat(run("chattr", "-i", region.toString())).isZero();
        }
    }

    @Test
    void aContainerThatHasRefusedAProcessIsNamedHoweverOftenItSaysSo() throws IOException {
        now = Duration.ofHours(1).toNanos();
        guard.look();
        for (long refusedMillis : new long[] {0, 1, Duration.ofHours(2).toMillis(), -1}) {
            look(refusedMillis);
        }
        assertThat(findings.list()).isEmpty();

        look(Duration.ofHours(1).toMillis());
        look(Duration.ofHours(1).toMillis());
        assertThat(findings.list()).containsExactly(new Finding(MAIN, new Problem.ProcessTableFull()));
        assertThat(asked.get()).as("questions to the kubelet").isEqualTo(1);
    }

    private void look(long refusedMillis) throws IOException {
        try (var file = FileChannel.open(region, StandardOpenOption.WRITE)) {
            ByteBuffer word = ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
            file.write(word.putLong(refusedMillis).flip(), 136); // region.h: process_refused_ms
        }
        look();
    }

    /** A container takes it while no agent runs. A call that waited would take 45 s, and so would each look. */
    @Test
    void aLeaseDelaysNoLookAtOtherRegionsAndItsPodIsNamed() throws Exception {
        Path other = Files.write(slots.resolve("slot-005"), Region.fresh());
        Path leased = Files.write(slots.resolve("slot-004"), Region.fresh());
        Lease.during(leased, Lease.Kind.READING, () -> {
            guard.start();
            Await.await(() -> !findings.list().isEmpty());
            assertThat(findings.list()).containsExactly(new Finding(MAIN, new Problem.ClosedFile()));
            Files.write(other, new byte[MIB], StandardOpenOption.APPEND);
            Await.await(() -> Files.size(other) == Region.SIZE);
            Path made = Files.write(state.resolve("made"), new byte[1]);
            Lease.during(made, Lease.Kind.READING, () -> {
                Path agentFile = Files.move(made, state.resolve("agent/slot-005"));
                awaitWaiting(agentFile);
                Files.write(other, new byte[MIB], StandardOpenOption.APPEND);
                Await.await(
                        "the region of a slot whose agent's file is leased", () -> Files.size(other) == Region.SIZE);
            });
        });
        Await.await(() -> !Lease.isGranted(leased, Lease.Kind.READING)); // the agent holds it
    }

    @Test
    void whatRemainsOfARegionThatCannotBeOpenedIsRemovedWithItsPod() throws Exception {
        Path unknown = Files.write(slots.resolve("slot-005"), Region.fresh());
        Path made = Files.write(state.resolve("made"), Region.fresh());
        holders = new DeviceHolders.Unavailable("the kubelet restarts");
        Lease.during(unknown, Lease.Kind.READING, () -> {
            guard.look();
            awaitWaiting(unknown);
        });
        holders = new DeviceHolders.Known(List.of());
        Lease.during(made, Lease.Kind.READING, () -> {
            Path leased = Files.move(made, slots.resolve("slot-006"));
            guard.look();
            Await.await(() -> !Files.exists(leased));
        });
        assertThat(unknown).exists();
    }

    /** Waits until a thread waits for a file. */
    private static void awaitWaiting(Path file) {
        Await.await(() -> Thread.getAllStackTraces().keySet().stream()
                .anyMatch(thread -> thread.getName().equals("file " + file)));
    }

    @Test
    void theLookSurvivesAnySizeAndAnyKindOfFile() throws Exception {
        Path elsewhere = Files.write(slots.resolve("elsewhere"), new byte[2 * MIB]);
        Files.createSymbolicLink(slots.resolve("slot-000"), elsewhere);
        assertThat(run("mkfifo", slots.resolve("slot-001").toString())).isZero();
        Files.createDirectory(slots.resolve("slot-002"));
        Files.write(slots.resolve("slot-005"), new byte[0]);
        Files.write(slots.resolve("slot-006"), Arrays.copyOf(Region.fresh(), 100));
        try (var hole = new RandomAccessFile(region.toFile(), "rw")) {
            hole.setLength(1L << 40);
        }

        look();
        look();

        assertThat(elsewhere).hasSize(2 * MIB);
        assertThat(slots.resolve("slot-005")).isEmptyFile();
        assertThat(slots.resolve("slot-006")).hasSize(100);
        assertThat(region).hasSize(Region.SIZE);
        assertThat(findings.list()).containsExactly(new Finding(MAIN, new LargeRegion(1L << 40, true)));
    }

    /** {@code fallocate --keep-size} and attributes: the length shows neither. On a loop device. */
    @ParameterizedTest
    @CsvSource({
        "ext4, 1, 1000", // one block for all attributes
        "xfs, 60, 60000",
        "btrfs, 60, 10000"
    })
    void noSpaceBeyondTheEndAndNoAttributeStays(String fileSystem, int attributes, int attribute) throws Exception {
        Path device = state.resolve("device");
        Path mounted = Files.createDirectory(state.resolve("mounted"));
        try (var image = new RandomAccessFile(device.toFile(), "rw")) {
            image.setLength(512L * MIB);
        }
        assumeTrue(has("mkfs." + fileSystem), "mkfs." + fileSystem + " is not installed");
        assertThat(run("mkfs." + fileSystem, "-q", device.toString())).isZero();
        assumeTrue(run("mount", "-o", "loop", device.toString(), mounted.toString()) == 0, "no loop device");
        try {
            Path own =
                    Files.write(Files.createDirectory(mounted.resolve("slots")).resolve("slot-003"), Region.fresh());
            guard.close();
            guard = guard(mounted);
            look();
            long usual = blocks(own);
            assertThat(run("fallocate", "--keep-size", "--length", "50M", own.toString()))
                    .isZero();
            assertThat(own).hasSize(Region.SIZE);
            assertThat(blocks(own)).isGreaterThan(usual + 50 * MIB / 512 / 2);
            for (int i = 0; i < attributes; i++) {
                Files.setAttribute(own, "user:a" + i, new byte[attribute]);
            }

            look();

            assertThat(blocks(own)).isLessThan(usual + MIB / 512);
            assertThat(own).hasBinaryContent(Region.fresh());
            assertThat(findings.list()).singleElement().satisfies(finding -> {
                assertThat(finding.container()).isEqualTo(MAIN);
                assertThat(((LargeRegion) finding.problem()).bytes()).isGreaterThanOrEqualTo(50 * MIB);
                assertThat(((LargeRegion) finding.problem()).cut()).isTrue();
            });
            assertThat(Files.getFileAttributeView(own, UserDefinedFileAttributeView.class)
                            .list())
                    .isEmpty();

            if (attributes > 1) {
                now += Duration.ofSeconds(5).toNanos();
                for (int i = 0; i < 300; i++) { // together more than a program can list
                    Files.setAttribute(own, "user:" + i + "x".repeat(240), new byte[attribute / 3]);
                }
                look();
                assertThat(((LargeRegion) findings.list().getFirst().problem()).cut())
                        .isFalse();
            }
        } finally {
            guard.close();
            assertThat(run("umount", "--lazy", mounted.toString())).isZero();
        }
    }

    private static boolean has(String program) throws Exception {
        return run("sh", "-c", "command -v " + program + " > /dev/null") == 0;
    }

    private static int run(String... command) throws Exception {
        return new ProcessBuilder(command).start().waitFor();
    }

    private static long blocks(Path file) throws Exception {
        Process stat = new ProcessBuilder("stat", "--format", "%b", file.toString()).start();
        return Long.parseLong(new String(stat.getInputStream().readAllBytes(), StandardCharsets.US_ASCII).strip());
    }
}
