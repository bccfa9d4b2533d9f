package io.aliquot.deviceplugin.usage;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.tuple;
import static org.assertj.core.api.Assertions.within;

import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Held;
import io.aliquot.api.pods.Priority;
import io.aliquot.api.usage.NodeAllocation;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageHistory;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.deviceplugin.attribution.ContainerName;
import io.aliquot.deviceplugin.attribution.Limits;
import io.aliquot.deviceplugin.nvml.GpuUsage;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

final class RecentUsageTest {
    private static final String GPU = "GPU-11111111-2222-3333-4444-555555555555";
    private static final String UID = "0a1b2c3d-0000-4000-8000-00000000000f";
    private static final ContainerName MAIN = new ContainerName("team", "train", "main");
    private static final Instant START = Instant.parse("2026-11-26T12:00:00Z");
    private static final long MIB = 1L << 20;

    private long now;
    private List<NodeAllocation.Limit> limits = List.of();
    private final RecentUsage recent = new RecentUsage(() -> new Limits(limits), () -> START.plusNanos(now), () -> now);

    @Test
    void thereIsNoReportBeforeTheFirstSampleAndWhileNvmlDoesNotAnswer() {
        assertThat(recent.report("node1", List.of(), List.of())).isEmpty();

        sample(UID, 100, 0);
        assertThat(recent.report("node1", List.of(), List.of())).isPresent();

        now += Duration.ofSeconds(11).toNanos();
        assertThat(recent.report("node1", List.of(), List.of())).isEmpty();
    }

    @Test
    void memoryIsSustainedWhenItWasUsedForTenSeconds() {
        for (int i = 0; i < 9; i++) {
            sample(UID, 500, 0);
            assertThat(container().sustainedBytes()).isEmpty();
        }
        sample(UID, 400, 0);
        assertThat(container().sustainedBytes()).hasValue(400 * MIB);

        for (int i = 0; i < 10; i++) {
            sample(UID, 700, 0);
        }
        assertThat(container().sustainedBytes()).hasValue(700 * MIB);
    }

    @Test
    void memoryWithoutAFigureIsNotSustained() {
        for (int i = 0; i < 12; i++) {
            sample(UID, -1, 0);
        }

        assertThat(container().sustainedBytes()).isEmpty();
    }

    @Test
    void aContainerIsActiveWhileItUsesTheCoresOrItsMemoryChanges() {
        sample(UID, 100, 0);
        sample(UID, 100, 0.5);
        assertThat(container().lastActive()).contains(at(2));
        assertThat(container().utilizationPercent()).hasValue(50);
        assertThat(container().borrowedPercent()).as("its limit is not known").isEmpty();

        sample(UID, 100, 0);
        assertThat(container().lastActive()).as("idle").contains(at(2));
        assertThat(container().utilizationPercent()).hasValue(0);

        sample(UID, 200, 0);
        assertThat(container().lastActive()).contains(at(4));
    }

    @Test
    void theHistoryHasAValueForEachSecondAndNoneBeforeTheFirst() {
        sample(UID, 100, 0);
        sample(UID, 200, 1);

        UsageHistory history = history();

        assertThat(history.end()).isEqualTo(at(2));
        assertThat(history.gpu().usedMiB())
                .hasSize(900)
                .endsWith(OptionalInt.empty(), OptionalInt.of(100), OptionalInt.of(200));
        assertThat(history.containers()).singleElement().satisfies(one -> {
            assertThat(one.container().uid()).isEqualTo(UID);
            assertThat(one.unattributedMiB()).endsWith(OptionalInt.empty(), OptionalInt.of(100), OptionalInt.of(200));
            assertThat(one.utilizationPercent()).endsWith(OptionalInt.of(0), OptionalInt.of(100));
        });
    }

    @Test
    void aSkippedSecondIsFilledAndALongerPauseIsNot() {
        sample(UID, 100, 0);
        now += Duration.ofSeconds(1).toNanos();
        sample(UID, 200, 0);
        assertThat(history().gpu().usedMiB()).endsWith(OptionalInt.of(100), OptionalInt.of(200), OptionalInt.of(200));

        now += Duration.ofSeconds(2).toNanos();
        sample(UID, 300, 0);
        assertThat(history().gpu().usedMiB())
                .endsWith(OptionalInt.of(200), OptionalInt.empty(), OptionalInt.empty(), OptionalInt.of(300));
    }

    @Test
    void afterFifteenMinutesTheOldestValuesAndEndedContainersAreForgotten() {
        sample(UID, 100, 0);
        for (int i = 0; i < 900; i++) {
            now += Duration.ofSeconds(1).toNanos();
            recent.add(new NodeUsage(List.of(gpu(7)), List.of()));
            if (i == 898) {
                assertThat(history().containers()).hasSize(1);
            }
        }

        assertThat(history().containers()).isEmpty();
        assertThat(history().gpu().usedMiB()).containsOnly(OptionalInt.of(7));
    }

    @Test
    void aPodOfTheSameNameBeginsItsOwnHistory() {
        sample(UID, 100, 0);
        sample("1a1b2c3d-0000-4000-8000-00000000000f", 200, 0);

        assertThat(history().containers())
                .singleElement()
                .satisfies(one -> assertThat(one.unattributedMiB()).endsWith(OptionalInt.empty(), OptionalInt.of(200)));
    }

    @Test
    void aContainerWhoseUidBecomesKnownKeepsItsHistory() {
        sample("", 100, 0);
        sample(UID, 200, 0);

        assertThat(history().containers())
                .singleElement()
                .satisfies(one -> assertThat(one.unattributedMiB()).endsWith(OptionalInt.of(100), OptionalInt.of(200)));
    }

    @Test
    void containersThatComeAndGoTakeNoMoreThanTheBoundAndNothingFromOneThatRuns() {
        for (int second = 0; second < 1000; second++) {
            now += Duration.ofSeconds(1).toNanos();
            var uses = new ArrayList<NodeUsage.OfContainer>();
            uses.add(use("runs", UID, OptionalLong.of(second * MIB), 0));
            for (int i = 0; i < 20; i++) {
                uses.add(use("p" + second + "-" + i, "", OptionalLong.of(second * MIB), 0));
            }
            recent.add(new NodeUsage(List.of(gpu(7)), uses));
            assertThat(recent.bytes()).isLessThanOrEqualTo(RecentUsage.MOST_BYTES);
        }

        assertThat(recent.bytes()).as("used").isGreaterThan(RecentUsage.MOST_BYTES - 10_000);
        assertThat(history().containers())
                .filteredOn(one -> one.container().pod().equals("runs"))
                .extracting(UsageHistory.OfContainer::unattributedMiB)
                .containsExactly(seconds(101, 1));
        assertThat(history().containers())
                .hasSize(UsageHistory.MOST_CONTAINERS)
                .extracting(one -> one.container().pod())
                .contains("p999-0", "p998-0");
    }

    @Test
    void endedContainersLoseSecondsThenAllAndThoseThatRunLoseSecondsLast() {
        samples(1, '1', 900);
        samples(239, '2', 600);
        assertThat(of('1').getFirst().unattributedMiB().subList(0, 299))
                .isEqualTo(seconds(601, 10).subList(0, 299));
        assertThat(of('2'))
                .allSatisfy(one -> assertThat(one.unattributedMiB().subList(300, 900))
                        .isEqualTo(seconds(901, 1).subList(0, 600)));

        samples(300, '3', 1);
        assertThat(of('1'))
                .as("its former seconds are kept while others have more")
                .hasSize(1);

        samples(4000, '4', 30);
        assertThat(of('1')).isEmpty();
        assertThat(of('2')).isEmpty();
        assertThat(of('4').getFirst().unattributedMiB()).endsWith(OptionalInt.of(1530));
        assertThat(recent.bytes()).isLessThanOrEqualTo(RecentUsage.MOST_BYTES);
        assertThat(recent.report("node1", List.of(), List.of()).orElseThrow().containers())
                .hasSize(4000)
                .allSatisfy(one -> assertThat(one.sustainedBytes()).hasValue(1521 * MIB));
    }

    /** For so many seconds, so many containers use in each second as many MiB of a GPU as seconds have passed before. */
    private void samples(int count, char gpu, int seconds) {
        for (int i = 0; i < seconds; i++) {
            OptionalLong bytes = OptionalLong.of(now / Duration.ofSeconds(1).toNanos() * MIB);
            now += Duration.ofSeconds(1).toNanos();
            var uses = new ArrayList<NodeUsage.OfContainer>();
            for (int pod = 0; pod < count; pod++) {
                uses.add(use(uuid(gpu), "p" + pod, "", bytes, 0));
            }
            recent.add(new NodeUsage(List.of(gpu(uuid(gpu), 7)), uses));
        }
    }

    private static String uuid(char gpu) {
        return GPU.replace('5', gpu);
    }

    private List<UsageHistory.OfContainer> of(char gpu) {
        return recent.history(uuid(gpu), List.of()).orElseThrow().containers();
    }

    /** The latest value of each {@code step} seconds, from the first on. */
    private static List<OptionalInt> seconds(int first, int step) {
        return IntStream.range(first, first + 900)
                .mapToObj(second -> OptionalInt.of(second / step * step + step - 2))
                .toList();
    }

    /** The scheduler reads no longer answers. */
    @Test
    void aHistoryHasTheContainersThatUsedTheGpuLast() {
        for (int pod = 0; pod < UsageHistory.MOST_CONTAINERS + 10; pod++) {
            now += Duration.ofSeconds(1).toNanos();
            recent.add(new NodeUsage(List.of(gpu(7)), List.of(use("p" + pod, "", OptionalLong.empty(), 0))));
        }

        assertThat(history().containers())
                .hasSize(UsageHistory.MOST_CONTAINERS)
                .extracting(one -> one.container().pod())
                .contains("p49", "p10")
                .doesNotContain("p9");
    }

    /**
     * Fixed 30 % beside elastic 20 %: 50 % are of no container. The elastic one uses 70 %, so 50 % are borrowed of the 75 %
     * that are left, 25 of them by the fixed one that uses 5 %.
     */
    @Test
    void whatAnElasticContainerUsesBeyondItsCoresIsLentInProportionToWhatIsLeftUnused() {
        usesOfTwo(30, CorePolicy.FIXED, 0.05, 20, CorePolicy.ELASTIC, 0.7);
        assertLending("owner", 1.0 / 6, 0);
        assertLending("other", 0, 0.5);

        usesOfTwo(30, CorePolicy.FIXED, 0.05, 20, CorePolicy.FIXED, 0.7);
        assertLending("other", 0, 0.5); // an error of the limit is not borrowed
        usesOfTwo(30, CorePolicy.NONE, 0.05, 20, CorePolicy.ELASTIC, 0.2);
        usesOfTwo(30, CorePolicy.FIXED, 0.05, 20, CorePolicy.ELASTIC, 0);
        assertLending("owner", 1.0 / 6, 0); // what no container uses is not lent

        usesOfTwo(100, CorePolicy.FIXED, 0.05, 0, CorePolicy.ELASTIC, 0.7);
        assertLending("owner", 1.0 / 6 + 0.7, 0);
        assertLending("other", 0, 0.5 + 0.7);

        UsageHistory.OfContainer owner = history().containers().stream()
                .filter(one -> one.container().pod().equals("owner"))
                .findFirst()
                .orElseThrow();
        assertThat(owner.grantedMiB())
                .endsWith(
                        OptionalInt.empty(),
                        OptionalInt.of(1000),
                        OptionalInt.of(1000),
                        OptionalInt.of(1000),
                        OptionalInt.of(1000),
                        OptionalInt.of(1000));
        assertThat(owner.grantedPercent())
                .endsWith(OptionalInt.of(30), OptionalInt.empty(), OptionalInt.of(30), OptionalInt.of(100));
        assertThat(owner.lentPercent())
                .endsWith(
                        OptionalInt.empty(),
                        OptionalInt.of(17),
                        OptionalInt.of(0),
                        OptionalInt.of(0),
                        OptionalInt.of(0),
                        OptionalInt.of(70));
        assertThat(recent.report("node1", List.of(), List.of()).orElseThrow().containers())
                .extracting(
                        one -> one.container().pod(),
                        UsageReport.OfContainer::lentPercent,
                        UsageReport.OfContainer::borrowedPercent)
                .containsExactly(
                        tuple("owner", OptionalInt.of(70), OptionalInt.of(0)),
                        tuple("other", OptionalInt.of(0), OptionalInt.of(70)));
    }

    private void usesOfTwo(
            int cores, CorePolicy policy, double utilization, int other, CorePolicy ofOther, double byOther) {
        now += Duration.ofSeconds(1).toNanos();
        limits = List.of(limit("owner", cores, policy), limit("other", other, ofOther));
        recent.add(new NodeUsage(
                List.of(gpu(7)),
                List.of(
                        use("owner", UID, OptionalLong.empty(), utilization),
                        use("other", "", OptionalLong.empty(), byOther))));
    }

    private static NodeAllocation.Limit limit(String pod, int cores, CorePolicy policy) {
        return new NodeAllocation.Limit(
                new PodContainer("team", pod, UID, "main"), GPU, 1000, cores, policy, Priority.NORMAL, Held.SHARE);
    }

    private void assertLending(String pod, double lent, double borrowed) {
        assertThat(recent.lent(new ContainerName("team", pod, "main"), GPU)).hasValueSatisfying(one -> {
            assertThat(one.lentSeconds()).isCloseTo(lent, within(1e-9));
            assertThat(one.borrowedSeconds()).isCloseTo(borrowed, within(1e-9));
        });
    }

    @Test
    void anUnknownGpuHasNoHistory() {
        assertThat(recent.history("GPU-0", List.of())).isEmpty();
    }

    private void sample(String uid, long mib, double utilization) {
        now += Duration.ofSeconds(1).toNanos();
        OptionalLong bytes = mib < 0 ? OptionalLong.empty() : OptionalLong.of(mib * MIB);
        recent.add(new NodeUsage(List.of(gpu(Math.max(0, mib))), List.of(use(MAIN.pod(), uid, bytes, utilization))));
    }

    private static NodeUsage.OfContainer use(String pod, String uid, OptionalLong bytes, double utilization) {
        return use(GPU, pod, uid, bytes, utilization);
    }

    private static NodeUsage.OfContainer use(
            String gpu, String pod, String uid, OptionalLong bytes, double utilization) {
        return new NodeUsage.OfContainer(
                new ContainerName("team", pod, "main"),
                uid,
                Optional.empty(),
                gpu,
                bytes,
                OptionalLong.of(0),
                bytes,
                0,
                7,
                OptionalDouble.of(utilization),
                0,
                0,
                1);
    }

    private static NodeUsage.OfGpu gpu(long mib) {
        return gpu(GPU, mib);
    }

    private static NodeUsage.OfGpu gpu(String uuid, long mib) {
        return new NodeUsage.OfGpu(
                new GpuUsage(uuid, OptionalInt.of(3), OptionalInt.empty(), OptionalInt.empty(), List.of(), List.of()),
                mib * MIB,
                0);
    }

    private UsageReport.OfContainer container() {
        return recent.report("node1", List.of(), List.of())
                .orElseThrow()
                .containers()
                .getFirst();
    }

    private UsageHistory history() {
        Optional<UsageHistory> history = recent.history(GPU, List.of());
        assertThat(UsageHistory.parse(history.orElseThrow().print())).isEqualTo(history.get());
        return history.get();
    }

    private static Instant at(int second) {
        return START.plusSeconds(second);
    }
}
