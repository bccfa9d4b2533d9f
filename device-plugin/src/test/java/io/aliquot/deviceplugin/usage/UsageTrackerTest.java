package io.aliquot.deviceplugin.usage;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.tuple;

import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Held;
import io.aliquot.api.pods.Priority;
import io.aliquot.api.shim.AgentFile;
import io.aliquot.api.shim.Region;
import io.aliquot.api.usage.NodeAllocation;
import io.aliquot.api.usage.NodeAllocation.Limit;
import io.aliquot.api.usage.UsageReport.Finding;
import io.aliquot.api.usage.UsageReport.Problem;
import io.aliquot.deviceplugin.attribution.ContainerName;
import io.aliquot.deviceplugin.attribution.Limits;
import io.aliquot.deviceplugin.files.SlotFiles;
import io.aliquot.deviceplugin.guard.RecentFindings;
import io.aliquot.deviceplugin.kubelet.DeviceHolders;
import io.aliquot.deviceplugin.nvml.GpuUsage;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Random;
import java.util.UUID;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The tracker on a host made of files: processes, the kubelet's links, regions. */
final class UsageTrackerTest {
    private static final long MIB = 1L << 20;
    private static final String GPU = "GPU-11111111-2222-3333-4444-555555555555";
    private static final String OTHER_GPU = "GPU-11111111-2222-3333-4444-666666666666";
    private static final String UID = "0a1b2c3d-0000-4000-8000-00000000000f";
    private static final ContainerName MAIN = new ContainerName("team", "train", "main");

    private static final Instant START = Instant.parse("2026-11-26T12:00:00Z");

    private final Path host;
    private final List<GpuUsage.GpuProcess> running = new ArrayList<>();
    private final List<GpuUsage.Utilization> utilization = new ArrayList<>();
    private Limits limits = Limits.NONE;
    private OptionalInt busyPercent = OptionalInt.of(0);
    private DeviceHolders holders = new DeviceHolders.Known(List.of(slot(MAIN, "slot-003")));
    private long now;
    private final RecentUsage recent = new RecentUsage(() -> Limits.NONE, () -> START.plusNanos(now), () -> now);
    private final RecentFindings findings = new RecentFindings(() -> now);
    private final SlotFiles files;
    private final UsageTracker tracker;

    UsageTrackerTest(@TempDir Path host) throws IOException {
        this.host = host;
        Files.createDirectories(host.resolve("state/agent"));
        Files.createDirectories(host.resolve("logs"));
        Files.write(host.resolve("state/agent/slot-003"), AgentFile.fresh());
        files = SlotFiles.open(host.resolve("state"));
        region("slot-003", Region.fresh());
        tracker = new UsageTracker(
                host.resolve("proc"),
                host.resolve("logs"),
                host.resolve("state"),
                files,
                () -> holders,
                () -> limits,
                findings,
                List.of(recent),
                () -> now);
    }

    @Test
    void contextsAreUnattributedMemoryFromTheSecondSampleOn() throws Exception {
        process(100, 7, containerOf(MAIN, 'a'));
        uses(100, 2256);
        region("slot-003", charged(GPU, 7, 2000));

        assertThat(sample())
                .singleElement()
                .satisfies(first -> assertThat(first.unattributedBytes()).hasValue(0));
        assertThat(sample()).singleElement().satisfies(second -> {
            assertThat(second.container()).isEqualTo(MAIN);
            assertThat(second.chargedBytes()).hasValue(2000 * MIB);
            assertThat(second.unattributedBytes()).hasValue(256 * MIB);
            assertThat(second.peakBytes()).isEqualTo(2256 * MIB);
            assertThat(second.processes()).isEqualTo(1);
        });
        assertThat(recent.latest().gpus()).singleElement().satisfies(gpu -> {
            assertThat(gpu.sharedBytes()).isEqualTo(2256 * MIB);
            assertThat(gpu.otherBytes()).isZero();
        });
    }

    @Test
    void theContainersProcessesAreToldTheirUnattributedMemory() throws Exception {
        process(100, 7, containerOf(MAIN, 'a'));
        uses(100, 256);
        sample();
        assertThat(told().values()).as("after one sample").singleElement().satisfies(gpu -> {
            assertThat(gpu.uuid()).as("for the arbiter").isEqualTo(GPU);
            assertThat(gpu.unattributedBytes()).isZero();
        });

        sample();
        assertThat(told().values()).singleElement().satisfies(gpu -> {
            assertThat(gpu.uuid()).isEqualTo(GPU);
            assertThat(gpu.unattributedBytes()).isEqualTo(256 * MIB);
        });
        assertThat(toldAtMillis()).isEqualTo(2000);
        sample();
        assertThat(toldAtMillis()).as("fresh although unchanged").isEqualTo(3000);

        running.clear();
        sample();
        assertThat(told().values())
                .singleElement()
                .satisfies(gpu -> assertThat(gpu.unattributedBytes()).isZero());
    }

    /** Which a program needs to know before it may call the driver past the shim. */
    @Test
    void theContainersProcessesAreToldWhetherTheyHaveWholeCardsOnly() throws Exception {
        process(100, 7, containerOf(MAIN, 'a'));
        uses(100, 300);
        assertThat(toldHeld()).as("the scheduler has said nothing").isEqualTo(Held.UNKNOWN);
        assertThat(toldHeld(limit("0f".repeat(16), GPU, Held.WHOLE_CARD)))
                .as("of an earlier pod of this name")
                .isEqualTo(Held.UNKNOWN);
        assertThat(toldHeld(limit(UID, GPU, Held.UNKNOWN)))
                .as("a scheduler of an earlier version")
                .isEqualTo(Held.UNKNOWN);
        assertThat(toldHeld(limit(UID, GPU, Held.WHOLE_CARD))).isEqualTo(Held.WHOLE_CARD);
        assertThat(toldHeld()).as("the agent has restarted").isEqualTo(Held.WHOLE_CARD);
        assertThat(toldHeld(
                        limit(UID, GPU, Held.WHOLE_CARD),
                        limit(UID, "GPU-11111111-2222-3333-4444-999999999999", Held.SHARE)))
                .isEqualTo(Held.SHARE);
    }

    private Held toldHeld(Limit... said) throws Exception {
        limits = new Limits(NodeAllocation.parse(new NodeAllocation(List.of(), List.of(said), List.of()).print())
                .limits());
        sample();
        return AgentFile.parse(Files.readAllBytes(host.resolve("state/agent/slot-003")))
                .held();
    }

    private static Limit limit(String uid, String gpu, Held held) {
        return new Limit(MAIN.ofPod(uid), gpu, 2000, 0, CorePolicy.FIXED, Priority.NORMAL, held);
    }

    /** The time at which the first GPU's unattributed memory was written ({@code updated_ms} of agent.h). */
    private long toldAtMillis() throws IOException {
        return ByteBuffer.wrap(Files.readAllBytes(host.resolve("state/agent/slot-003")))
                .order(ByteOrder.LITTLE_ENDIAN)
                .getLong(64 + 32);
    }

    private Map<Integer, AgentFile.Device> told() throws IOException {
        return AgentFile.parse(Files.readAllBytes(host.resolve("state/agent/slot-003")))
                .devices();
    }

    @Test
    void memoryThatAppearsForOneSampleIsNotUnattributed() throws Exception {
        process(100, 7, containerOf(MAIN, 'a'));
        uses(100, 256);
        sample();
        sample();

        uses(100, 1256); // NVML shows an allocation before the region does
        assertThat(sample())
                .singleElement()
                .satisfies(use -> assertThat(use.unattributedBytes()).hasValue(256 * MIB));
        region("slot-003", charged(GPU, 7, 1000));
        assertThat(sample())
                .singleElement()
                .satisfies(use -> assertThat(use.unattributedBytes()).hasValue(256 * MIB));
    }

    /** NVML sees each allocation, and the region is always read in between. */
    @Test
    void allocationsThatComeAndGoAreNotUnattributed() throws Exception {
        process(100, 7, containerOf(MAIN, 'a'));
        region("slot-003", charged(GPU, 7, 0));
        for (int i = 0; i < 5; i++) {
            int[] readings = new int[1];
            now += Duration.ofSeconds(1).toNanos();
            tracker.sample(since -> {
                // Unseen by the region three times in a row, and once not.
                uses(100, readings[0]++ % 4 == 3 ? 256 : 2956);
                return List.of(gpu());
            });
            assertThat(recent.latest().containers())
                    .singleElement()
                    .satisfies(use ->
                            assertThat(use.unattributedBytes().orElse(-1)).isLessThanOrEqualTo(256 * MIB));
        }
        assertThat(told().values())
                .singleElement()
                .satisfies(gpu -> assertThat(gpu.unattributedBytes()).isEqualTo(256 * MIB));
    }

    @Test
    void chargesOfDeadProcessesDoNotHideMemoryOfLivingOnes() throws Exception {
        process(100, 8, containerOf(MAIN, 'a'));
        uses(100, 300);
        region("slot-003", charged(GPU, 7, 2000)); // by a process that was killed
        sample();

        assertThat(sample()).singleElement().satisfies(use -> {
            assertThat(use.chargedBytes()).hasValue(0);
            assertThat(use.unattributedBytes()).hasValue(300 * MIB);
        });
    }

    @Test
    void aContainerWithoutProcessesUsesNothing() throws Exception {
        region("slot-003", charged(GPU, 7, 2000));

        assertThat(sample()).singleElement().satisfies(use -> {
            assertThat(use.chargedBytes()).hasValue(0);
            assertThat(use.processes()).isZero();
        });
        holders = new DeviceHolders.Known(List.of());
        now += Duration.ofSeconds(6).toNanos();
        assertThat(sample()).as("after the pod's end").isEmpty();
    }

    /** Regression: of a pod that the scheduler had told already, the kubelet was not asked again. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aNewContainerIsAttributedByTheFirstSampleThatSeesIt(boolean told) throws Exception {
        DeviceHolders later = holders;
        holders = new DeviceHolders.Known(List.of());
        assertThat(sample()).isEmpty();

        holders = later;
        limits = told ? new Limits(List.of(limit(UID, GPU, Held.SHARE))) : Limits.NONE;
        region("slot-003", charged(GPU, 7, 100));
        process(100, 7, containerOf(MAIN, 'a'));
        uses(100, 356);

        assertThat(sample()).singleElement().satisfies(use -> {
            assertThat(use.processes()).isEqualTo(1);
            assertThat(use.chargedBytes()).hasValue(100 * MIB);
        });
    }

    @Test
    void processesOutsideOfSharesAreARowOfTheirOwn() throws Exception {
        process(100, 100, "0::/system.slice/nvidia-persistenced.service");
        process(101, 1, containerOf(new ContainerName("team", "privileged", "main"), 'b'));
        uses(100, 10);
        uses(101, 20);
        uses(102, 30); // has ended since

        assertThat(sample()).isEmpty();
        assertThat(recent.latest().gpus()).singleElement().satisfies(gpu -> {
            assertThat(gpu.sharedBytes()).isZero();
            assertThat(gpu.otherBytes()).isEqualTo(60 * MIB);
        });
    }

    /** Its kubelet has admitted it without Allocate, and lists no slot of it. */
    @Test
    void aPodThatTheSchedulerKnowsAloneIsNoProcessOutsideOfShares() throws Exception {
        holders = new DeviceHolders.Known(List.of());
        limits = new Limits(List.of(limit(UID, GPU, Held.SHARE)));
        var side = new ContainerName("team", "train", "side");
        process(100, 7, containerOf(MAIN, 'a'));
        process(101, 7, containerOf(side, 'b'));
        uses(100, 5000);
        uses(101, 30);
        sample();

        assertThat(sample())
                .extracting(
                        NodeUsage.OfContainer::container, use -> use.nvmlBytes().orElse(0) / MIB)
                .containsExactlyInAnyOrder(tuple(side, 30L), tuple(MAIN, 5000L));
        assertThat(recent.latest().gpus().getFirst().otherBytes()).isZero();
    }

    @Test
    void anInitContainerIsTheContainerOfItsCgroupWithoutCharges() throws Exception {
        var init = new ContainerName("team", "train", "prepare");
        process(100, 1, containerOf(init, 'c'));
        uses(100, 500);
        sample();

        assertThat(sample()).singleElement().satisfies(use -> {
            assertThat(use.container()).isEqualTo(init);
            assertThat(use.chargedBytes()).isEmpty();
            assertThat(use.unattributedBytes()).hasValue(500 * MIB);
        });
    }

    @Test
    void twoContainersOfAPodAreToldApart() throws Exception {
        var side = new ContainerName("team", "train", "side");
        holders = new DeviceHolders.Known(List.of(slot(MAIN, "slot-003"), slot(side, "slot-001")));
        region("slot-001", charged(GPU, 7, 50));
        region("slot-003", charged(GPU, 7, 40));
        process(100, 7, containerOf(MAIN, 'a'));
        process(101, 7, containerOf(side, 'b'));
        uses(100, 41);
        uses(101, 52);
        sample();

        assertThat(sample())
                .extracting(
                        NodeUsage.OfContainer::container,
                        use -> use.chargedBytes().orElse(-1) / MIB)
                .containsExactly(tuple(MAIN, 40L), tuple(side, 50L));
    }

    @Test
    void aSlotWithTwoHoldersIsNobodysUntilTheKubeletForgetsThePodThatHasEnded() throws Exception {
        var ended = new ContainerName("team", "ended", "main");
        holders = new DeviceHolders.Known(List.of(slot(ended, "slot-003"), slot(MAIN, "slot-003")));
        region("slot-003", charged(GPU, 7, 40));
        process(100, 7, containerOf(MAIN, 'a'));
        uses(100, 41);

        assertThat(sample()).singleElement().satisfies(use -> {
            assertThat(use.container()).isEqualTo(MAIN);
            assertThat(use.chargedBytes()).isEmpty();
        });
    }

    @Test
    void aReusedProcessIdIsTheNewProcess() throws Exception {
        process(100, 7, containerOf(MAIN, 'a'));
        uses(100, 10);
        assertThat(sample()).hasSize(1);

        process(100, 100, "0::/system.slice/other.service");
        assertThat(sample().stream().mapToInt(NodeUsage.OfContainer::processes).sum())
                .isZero();
        assertThat(recent.latest().gpus().getFirst().otherBytes()).isEqualTo(10 * MIB);
    }

    @Test
    void aFigureThatNvmlDoesNotHaveIsUnknown() throws Exception {
        process(100, 7, containerOf(MAIN, 'a'));
        running.add(new GpuUsage.GpuProcess(100, OptionalLong.empty()));
        sample();

        assertThat(sample())
                .singleElement()
                .satisfies(use -> assertThat(use.unattributedBytes()).isEmpty());
    }

    @Test
    void gpuTimeIsUtilizationTimesThePeriodSinceTheLastSample() throws Exception {
        process(100, 7, containerOf(MAIN, 'a'));
        uses(100, 256);
        utilization.add(new GpuUsage.Utilization(100, 50_000_000, 0));
        sample();

        utilization.set(0, new GpuUsage.Utilization(100, 52_000_000, 25));
        assertThat(sample()).singleElement().satisfies(use -> {
            assertThat(use.gpuSeconds()).isEqualTo(0.5);
            assertThat(use.utilization()).hasValue(0.5);
        });
        utilization.clear(); // idle for 10 samples
        for (int i = 0; i < 10; i++) {
            assertThat(sample().getFirst().utilization()).hasValue(0);
        }
        utilization.add(new GpuUsage.Utilization(100, 63_000_000, 100));
        assertThat(sample()).singleElement().satisfies(use -> {
            assertThat(use.gpuSeconds()).isEqualTo(1.5);
            assertThat(use.utilization()).hasValue(1);
        });
        busyPercent = OptionalInt.empty();
        assertThat(sample().getFirst().utilization()).as("as in MIG mode").isEmpty();
    }

    @Test
    void theCountersOfARestartedContainerStartAgain() throws Exception {
        process(100, 7, containerOf(MAIN, 'a'));
        uses(100, 2000);
        sample();
        assertThat(sample())
                .singleElement()
                .satisfies(use -> assertThat(use.peakBytes()).isEqualTo(2000 * MIB));

        running.clear();
        process(101, 7, containerOf(MAIN, 'd'));
        uses(101, 10);
        sample();
        assertThat(sample())
                .singleElement()
                .satisfies(use -> assertThat(use.peakBytes()).isEqualTo(10 * MIB));
    }

    @Test
    void aRegionWithAUuidOfNoGpuOfThisNodeMakesNoSeries() throws Exception {
        region("slot-003", charged(OTHER_GPU, 7, 40));

        assertThat(sample()).isEmpty();
    }

    @Test
    void aRegionFullOfGarbageChangesNothingElse() throws Exception {
        process(100, 7, containerOf(MAIN, 'a'));
        uses(100, 41);
        var random = new Random(29);
        for (int i = 0; i < 200; i++) {
            byte[] garbage = new byte[i % 10 == 0 ? random.nextInt(100) : Region.SIZE];
            random.nextBytes(garbage);
            if (i % 2 == 0 && garbage.length == Region.SIZE) {
                System.arraycopy(charged(GPU, 7, 1), 0, garbage, 0, 64); // past the checks of the header
                ByteBuffer.wrap(garbage).order(ByteOrder.LITTLE_ENDIAN).putInt(64, random.nextInt(513));
            }
            region("slot-003", garbage);

            assertThat(sample()).anySatisfy(use -> {
                assertThat(use.container()).isEqualTo(MAIN);
                assertThat(use.uuid()).isEqualTo(GPU);
                assertThat(use.unattributedBytes().orElse(0)).isBetween(0L, 41 * MIB);
            });
        }
    }

    @Test
    void figuresEndWhenNvmlNoLongerAnswers() throws Exception {
        uses(100, 10);
        sample();
        assertThat(recent.latest().gpus()).hasSize(1);

        now += Duration.ofSeconds(11).toNanos();

        assertThat(recent.latest()).isEqualTo(NodeUsage.NONE);
    }

    @Test
    void theLastAnswerOfTheKubeletStandsWhileItDoesNotAnswer() throws Exception {
        process(100, 7, containerOf(MAIN, 'a'));
        uses(100, 41);
        assertThat(sample()).hasSize(1);

        holders = new DeviceHolders.Unavailable("it restarts");
        now += Duration.ofMinutes(1).toNanos();

        assertThat(sample()).hasSize(1);
    }

    /** A static program: NVML shows it, and it has no place in the region. A program that only opened its context has one. */
    @Test
    void aProcessThatTheShimDoesNotCountForTenSecondsIsReported() throws Exception {
        process(100, 7, containerOf(MAIN, 'a'));
        process(101, 8, containerOf(MAIN, 'a'));
        uses(100, 256);
        uses(101, 300);
        region("slot-003", charged(GPU, 7, 0));
        samples(10);
        assertThat(findings.list()).as("for 9 s").isEmpty();

        sample();
        assertThat(problems()).containsExactly(new Problem.WithoutShim(GPU));
        running.clear();
        now += Duration.ofMinutes(3).toNanos();
        sample();
        uses(100, 256);
        samples(20);
        assertThat(findings.list()).as("its other program is counted").isEmpty();
    }

    /** The driver frees the memory of a process that has ended, while another one has taken its place in the region. */
    @Test
    void programsThatEndInTimeAreNotReportedHoweverManyThereAre() throws Exception {
        region("slot-003", charged(GPU, 7, 0));
        for (int pid = 100; pid < 110; pid++) {
            process(pid, pid, containerOf(MAIN, 'a'));
            running.clear();
            uses(pid, 256);
            samples(9);
        }
        assertThat(findings.list()).isEmpty();
    }

    /** LimitsCheckTest has the cases; a folder that is renamed or a link matters to programs that the shim counts. */
    @Test
    void aProcessThatDoesNotSeeItsLimitsIsReportedByTheFirstSample() throws Exception {
        String state = host.resolve("state").toString();
        process(100, 7, containerOf(MAIN, 'a'));
        process(1, 1, "0::/init.scope");
        Files.createDirectories(host.resolve("proc/self"));
        Files.writeString(host.resolve("proc/self/mountinfo"), "30 1 8:1 / / rw - ext4 /dev/sda rw\n");
        Files.writeString(
                host.resolve("proc/1/mountinfo"),
                "40 30 0:58 / /var/lib/kubelet/pods/" + UID
                        + "/volumes/kubernetes.io~downward-api/aliquot-vgpu-main rw - tmpfs tmpfs rw\n");
        String moved = "20 1 0:9 / / rw - overlay overlay rw\n21 20 0:58 / /old/aliquot ro - tmpfs tmpfs rw\n";
        Files.writeString(host.resolve("proc/100/mountinfo"), moved);
        uses(100, 256);

        samples(10);
        assertThat(findings.list()).isEmpty();
        sample();
        assertThat(problems()).containsExactly(new Problem.WithoutShim(GPU));
        region("slot-003", charged(GPU, 7, 256));
        sample();
        assertThat(problems()).contains(new Problem.LimitsNotSeen("/etc/aliquot"));
        now += Duration.ofMinutes(3).toNanos();

        running.clear();
        process(200, 7, containerOf(MAIN, 'b'));
        uses(200, 256);
        Files.writeString(
                host.resolve("proc/200/mountinfo"),
                moved.replace("/old/", "/etc/") + "22 21 8:1 /mine /etc/aliquot rw - ext4 /dev/sda rw\n23 20 8:1 "
                        + state + "/x /x rw - ext4 a rw\n");
        sample();
        assertThat(findings.list())
                .containsExactly(new Finding(MAIN.ofPod(UID), new Problem.LimitsNotSeen("/etc/aliquot")));
    }

    private List<Problem> problems() {
        return findings.list().stream().map(Finding::problem).toList();
    }

    private void samples(int count) throws Exception {
        for (int i = 0; i < count; i++) {
            sample();
        }
    }

    private List<NodeUsage.OfContainer> sample() throws Exception {
        now += Duration.ofSeconds(1).toNanos();
        tracker.sample(since -> List.of(gpu()));
        return recent.latest().containers();
    }

    private GpuUsage gpu() {
        return new GpuUsage(GPU, busyPercent, OptionalInt.empty(), OptionalInt.empty(), running, utilization);
    }

    private void uses(int pid, long mib) {
        running.removeIf(process -> process.pid() == pid);
        running.add(new GpuUsage.GpuProcess(pid, OptionalLong.of(mib * MIB)));
    }

    /** A process, whose start time differs from that of an earlier one with its ID. */
    private void process(int pid, int pidInContainer, String cgroup) throws IOException {
        Path folder = Files.createDirectories(host.resolve("proc").resolve(Integer.toString(pid)));
        Files.writeString(
                folder.resolve("stat"),
                "%d (a) b\n) R 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n"
                        .formatted(pid, now + cgroup.hashCode()));
        Files.writeString(
                folder.resolve("status"),
                "Name:\ta) b\nPid:\t%d\nNSpid:\t%d\t%d\n".formatted(pid, pid, pidInContainer));
        Files.writeString(folder.resolve("cgroup"), cgroup);
    }

    /** The cgroup of a running container, with the kubelet's link to its log. */
    private String containerOf(ContainerName name, char digit) throws IOException {
        String id = String.valueOf(digit).repeat(64);
        Path link = host.resolve("logs/%s_%s_%s-%s.log".formatted(name.pod(), name.namespace(), name.container(), id));
        Files.deleteIfExists(link);
        Files.createSymbolicLink(
                link,
                Path.of("/var/log/pods/%s_%s_%s/%s/0.log"
                        .formatted(name.namespace(), name.pod(), UID, name.container())));
        return "0::/kubepods/burstable/pod" + UID + "/" + id;
    }

    private static DeviceHolders.Holder slot(ContainerName container, String slot) {
        return new DeviceHolders.Holder(
                container.namespace() + "/" + container.pod(), container.container(), "aliquot.io/vgpu", List.of(slot));
    }

    private void region(String slot, byte[] content) throws IOException {
        Files.write(host.resolve("state/slots").resolve(slot), content);
        files.regions().refresh();
    }

    /** A region with one process that has charged memory on one GPU; region.h describes the layout. */
    private static byte[] charged(String gpu, int pid, long mib) {
        ByteBuffer region = ByteBuffer.wrap(Region.fresh()).order(ByteOrder.LITTLE_ENDIAN);
        UUID uuid = UUID.fromString(gpu.substring("GPU-".length()));
        region.putInt(64, 1);
        region.putLong(4096, Long.reverseBytes(uuid.getMostSignificantBits()));
        region.putLong(4104, Long.reverseBytes(uuid.getLeastSignificantBits()));
        region.putInt(8192, pid);
        region.putLong(40960, mib * MIB);
        return region.array();
    }
}
