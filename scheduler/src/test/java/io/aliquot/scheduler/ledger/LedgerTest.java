package io.aliquot.scheduler.ledger;

import static io.aliquot.api.nodes.SharingMode.CORE_MEMORY;
import static io.aliquot.api.nodes.SharingMode.MEMORY;
import static io.aliquot.scheduler.placement.Gpus.gpu;
import static io.aliquot.scheduler.placement.Gpus.request;
import static io.aliquot.scheduler.placement.Gpus.uuid;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;

import io.aliquot.api.nodes.ForeignHolder;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.NodeLabel;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.MemoryRequest.Mebibytes;
import io.aliquot.api.pods.MemoryRequest.Percentage;
import io.aliquot.api.pods.MemoryRequest.WholeCard;
import io.aliquot.api.pods.Placement;
import io.aliquot.api.pods.Vgpus;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.scheduler.ledger.Commitment.AlreadyBound;
import io.aliquot.scheduler.ledger.Commitment.Conflict;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.ledger.Commitment.Unresolved;
import io.aliquot.scheduler.ledger.ForeignPod.ForeignVgpu;
import io.aliquot.scheduler.placement.CandidatePlacements;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuInfo;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeGpus;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

public class LedgerTest {
    private static final PodGpuRequest HALF = request("APP:main: gpumem=500");
    private static final long TEN_SECONDS = Duration.ofSeconds(10).toNanos();
    private static final PodGpuRequest WHOLE = request("APP:main: gpu=1");

    /** The clock overflows during the tests. */
    private final AtomicLong now = new AtomicLong(Long.MAX_VALUE - 1);

    private final List<String> told = new ArrayList<>();
    private final LedgerListener listener = new LedgerListener() {
        @Override
        public void capacityFreed(String node) {
            told.add("freed " + node);
        }

        @Override
        public void overallocated(String node, String gpu) {
            told.add("oversold " + node + " " + gpu);
        }
    };
    private final Ledger ledger = new Ledger(now::get, listener);

    @BeforeEach
    void twoNodesWithAGpuEach() {
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000)));
        ledger.putNode("n2", sharing(10, gpu(2, 0, 1000)));
        told.clear();
    }

    @AfterEach
    void theSumsAreThoseOfTheClaims() {
        LedgerInvariants.recount(ledger);
    }

    @Test
    void aGpuIsGrantedUntilItIsFullAndNoFurther() {
        assertThat(ledger.commit(pod("a"), "n1", HALF, 1)).isInstanceOf(Granted.class);
        assertThat(ledger.commit(pod("b"), "n1", HALF, 1)).isInstanceOf(Granted.class);
        assertThat(ledger.commit(pod("c"), "n1", HALF, 1)).isEqualTo(new Conflict("no GPU with 500 MiB free"));
    }

    @Test
    void aNodeWhoseAgentIsNotReadyRefusesPodsAndKeepsItsOwn() {
        ledger.commit(pod("a"), "n1", HALF, 1);
        ledger.setAgentReady("n1", false);
        assertThat(ledger.feasibility("n1", "b", HALF))
                .isEqualTo(new Feasibility.Refused("the node's device plugin is not ready or does not answer", true));
        assertThat(ledger.commit(pod("b"), "n1", HALF, 1))
                .isEqualTo(new Conflict("the node's device plugin is not ready or does not answer"));
        assertThat(ledger.nodeOf(pod("a").uid())).contains("n1");

        ledger.setAgentReady("n1", true);
        assertThat(told).containsExactly("freed n1");
        assertThat(ledger.feasibility("n1", "b", HALF)).isInstanceOf(Feasibility.Fits.class);
        assertThat(ledger.feasibility("n1", "b", WHOLE)).isInstanceOf(Feasibility.Refused.class);
    }

    @Test
    void aReservationBlocksOtherPodsButNotItsOwn() {
        ledger.reserve(pod("a"), "n1", WHOLE);
        assertThat(ledger.feasibility("n1", "b", HALF))
                .isEqualTo(new Feasibility.Refused("no GPU with 500 MiB free", false));
        assertThat(ledger.feasibility("n1", "a", WHOLE)).isInstanceOf(Feasibility.Fits.class);
        assertThat(ledger.commit(pod("a"), "n1", WHOLE, 1)).isInstanceOf(Granted.class);
    }

    @Test
    void aReservationExpiresAndReportsTheFreedCapacity() {
        ledger.reserve(pod("a"), "n1", WHOLE);
        now.addAndGet(Ledger.RESERVATION_TIME.toNanos() + 1);
        ledger.expire();
        assertThat(ledger.feasibility("n1", "b", WHOLE)).isInstanceOf(Feasibility.Fits.class);
        assertThat(told).containsExactly("freed n1");
        assertThat(LedgerInvariants.unconfirmed(ledger)).isEmpty();
    }

    @Test
    void aPodBoundOnAnotherNodeReleasesItsReservation() {
        ledger.reserve(pod("a"), "n1", WHOLE);
        assertThat(ledger.commit(pod("a"), "n2", WHOLE, 1)).isInstanceOf(Granted.class);
        assertThat(ledger.feasibility("n1", "b", WHOLE)).isInstanceOf(Feasibility.Fits.class);
        assertThat(told).containsExactly("freed n1");
    }

    @Test
    void noSecondBindingIsGrantedForAVersionWhoseOutcomeIsUnknown() {
        ledger.commit(pod("a"), "n1", HALF, 5);
        assertThat(ledger.assumedNode("a")).contains("n1");
        assertThat(ledger.unresolvedBase("a")).hasValue(5);
        assertThat(ledger.commit(pod("a"), "n1", HALF, 5)).isEqualTo(new Unresolved("n1"));
        assertThat(ledger.commit(pod("a"), "n2", HALF, 4)).isEqualTo(new Unresolved("n1"));
        ledger.reserve(pod("a"), "n2", HALF);
        assertThat(ledger.assumedNode("a")).contains("n1");
        ledger.observeUnbound("a", 5);
        assertThat(ledger.assumedNode("a")).contains("n1");
        assertThat(ledger.commit(pod("a"), "n2", HALF, 6)).isInstanceOf(Granted.class);
        assertThat(ledger.assumedNode("a")).contains("n2");
        assertThat(ledger.feasibility("n1", "b", WHOLE)).isInstanceOf(Feasibility.Fits.class);
        ledger.release("a", 5);
        assertThat(ledger.assumedNode("a"))
                .as("the refusal was of the Binding before")
                .contains("n2");
        ledger.observeUnbound("a", 7);
        assertThat(LedgerInvariants.unconfirmed(ledger)).isEmpty();
    }

    @Test
    void reportsOfOldVersionsAreIgnored() {
        ledger.observeBound(
                BoundPods.of(pod("a"), "n1", 7, BoundPods.main(uuid(1, 0), new GpuAmount(800, 0, 1, false))));
        ledger.observeBound(
                BoundPods.of(pod("a"), "n1", 6, BoundPods.main(uuid(1, 0), new GpuAmount(100, 0, 1, false))));
        ledger.assume(BoundPods.of(pod("a"), "n1", 5, BoundPods.main(uuid(1, 0), new GpuAmount(100, 0, 1, false))));
        assertThat(taken()).isEqualTo(new GpuAmount(800, 0, 1, false));
    }

    @Test
    void aLateReleaseDoesNotRemoveAClaimThatTheWatchReported() {
        ledger.commit(pod("a"), "n1", WHOLE, 1);
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(1000, 0, 1, true)));
        ledger.release("a", 1);
        assertThat(ledger.commit(pod("a"), "n1", WHOLE, 1)).isEqualTo(new AlreadyBound("n1"));
        assertThat(ledger.commit(pod("a"), "n2", WHOLE, 2)).isEqualTo(new AlreadyBound("n1"));
        assertThat(ledger.nodeOf("a")).contains("n1");
        assertThat(ledger.feasibility("n1", "b", HALF)).isInstanceOf(Feasibility.Refused.class);
    }

    @Test
    void aReleasedOrEndedPodReportsFreedCapacityOnce() {
        ledger.commit(pod("a"), "n1", HALF, 1);
        ledger.release("a", 1);
        ledger.release("a", 1);
        ledger.observeBound(bound("b", "n1", uuid(1, 0), new GpuAmount(500, 0, 1, false)));
        ledger.observeEnded("b");
        ledger.observeEnded("b");
        assertThat(told).containsExactly("freed n1", "freed n1");
    }

    @Test
    void unconfirmedWritesAreListedOnceTheyAreOld() {
        ledger.commit(pod("a"), "n1", HALF, 1);
        assertThat(ledger.assumedFor(Duration.ofSeconds(1))).isEmpty();
        now.addAndGet(Duration.ofSeconds(1).toNanos());
        assertThat(ledger.assumedFor(Duration.ofSeconds(1))).containsExactly(pod("a"));
        ledger.observeUnbound("a", 2);
        assertThat(ledger.assumedFor(Duration.ZERO)).isEmpty();
    }

    @Test
    void duringAResizeTheLargerOfBeforeAndAfterCounts() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(500, 20, 1, false)));
        var grow = List.of(new ContainerShareChange("main", 700, 10, null));
        assertThat(ledger.resize("a", grow)).isInstanceOf(Resizing.Prepared.class);
        assertThat(taken()).isEqualTo(new GpuAmount(700, 20, 1, false));
        assertThat(ledger.resize("a", grow)).isEqualTo(new Resizing.Unresolved());
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(500, 20, 1, false)));
        assertThat(taken()).as("the news are as old as the resize").isEqualTo(new GpuAmount(700, 20, 1, false));
        ledger.observeBound(
                BoundPods.of(pod("a"), "n1", 2, BoundPods.main(uuid(1, 0), new GpuAmount(700, 10, 1, false))));
        assertThat(taken()).isEqualTo(new GpuAmount(700, 10, 1, false));

        var shrink = List.of(new ContainerShareChange("main", 100, null, CorePolicy.ELASTIC));
        assertThat(ledger.resize("a", shrink)).isInstanceOf(Resizing.Prepared.class);
        assertThat(taken()).isEqualTo(new GpuAmount(700, 10, 1, false));
        ledger.observeBound(
                BoundPods.of(pod("a"), "n1", 3, BoundPods.main(uuid(1, 0), new GpuAmount(700, 10, 1, false))));
        assertThat(ledger.unresolvedBase("a"))
                .as("a newer version without it: it cannot happen any more")
                .isEmpty();
        assertThat(taken()).isEqualTo(new GpuAmount(700, 10, 1, false));
    }

    @Test
    void theNextLeaderAppliesAResizeThatItsWatchHasNotReportedYet() {
        ledger.observeBound(bound("grows", "n1", uuid(1, 0), new GpuAmount(300, 0, 1, false)));
        ledger.observeBound(bound("shrinks", "n2", uuid(2, 0), new GpuAmount(900, 0, 1, false)));
        // The leader before has resized both; all pods are listed before anything is granted.
        ledger.assume(BoundPods.of(pod("grows"), "n1", 4, BoundPods.main(uuid(1, 0), new GpuAmount(900, 0, 1, false))));
        ledger.assume(
                BoundPods.of(pod("shrinks"), "n2", 5, BoundPods.main(uuid(2, 0), new GpuAmount(100, 0, 1, false))));
        assertThat(ledger.commit(pod("b"), "n1", HALF, 1)).isInstanceOf(Conflict.class);
        assertThat(ledger.commit(pod("b"), "n2", HALF, 1))
                .as("it may use as much as before")
                .isInstanceOf(Conflict.class);
        // The watch catches up.
        ledger.observeBound(
                BoundPods.of(pod("grows"), "n1", 2, BoundPods.main(uuid(1, 0), new GpuAmount(300, 0, 1, false))));
        ledger.observeBound(
                BoundPods.of(pod("shrinks"), "n2", 3, BoundPods.main(uuid(2, 0), new GpuAmount(900, 0, 1, false))));
        assertThat(LedgerInvariants.taken(ledger))
                .isEqualTo(Map.of(
                        uuid(1, 0), new GpuAmount(900, 0, 1, false), uuid(2, 0), new GpuAmount(900, 0, 1, false)));
        assertThat(told).doesNotContain("oversold n2 " + uuid(2, 0));
        ledger.observeBound(
                BoundPods.of(pod("grows"), "n1", 4, BoundPods.main(uuid(1, 0), new GpuAmount(900, 0, 1, false))));
        assertThat(ledger.assumedFor(Duration.ZERO)).isEmpty();
        // Its own resize is not undone by a list that is older.
        ledger.resize("grows", List.of(new ContainerShareChange("main", 1000, null, null)));
        ledger.assume(BoundPods.of(pod("grows"), "n1", 4, BoundPods.main(uuid(1, 0), new GpuAmount(900, 0, 1, false))));
        assertThat(taken()).isEqualTo(new GpuAmount(1000, 0, 1, false));
    }

    /** Regression: what a smaller share freed was sold at once, while the pod went on using it. */
    @Test
    void whatAResizeFreesIsFreeWhenThePodUsesNoMoreThanItsLimit() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(800, 20, 1, false)));
        shrink(2, 100);
        assertThat(taken()).as("cores are free at once").isEqualTo(new GpuAmount(800, 10, 1, false));
        measured(101);
        now.addAndGet(Duration.ofDays(1).toNanos());
        measured(101);
        shrink(3, 100); // the same, in another version
        assertThat(taken().memoryMiB()).as("without a limit of time").isEqualTo(800);
        assertThat(view("a").shrunkAt()).isPresent();
        told.clear();
        measured(100);
        assertThat(taken()).isEqualTo(new GpuAmount(100, 10, 1, false));
        assertThat(view("a").shrunkAt()).isEmpty();
        assertThat(told).containsExactly("freed n1");
    }

    @Test
    void aReportFromBeforeAResizeFreesNothing() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(800, 20, 1, false)));
        shrink(2, 100);
        now.addAndGet(Excess.SETTLES.toNanos() - 1);
        measured(0);
        assertThat(taken().memoryMiB()).isEqualTo(800);
        now.addAndGet(1);
        measured(0);
        assertThat(taken().memoryMiB()).isEqualTo(100);
    }

    @Test
    void aShareThatGrowsAgainBeforeItsFormerAmountIsFreeNeedsNoFreeCapacity() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(800, 20, 1, false)));
        shrink(2, 100);
        assertThat(ledger.resize("a", List.of(new ContainerShareChange("main", 700, null, null))))
                .isInstanceOf(Resizing.Prepared.class);
        ledger.rollbackResize("a", 2);
        assertThat(taken().memoryMiB()).isEqualTo(800);
        shrink(3, 900);
        assertThat(taken().memoryMiB()).isEqualTo(900);
        measured(0);
        shrink(4, 800);
        assertThat(taken().memoryMiB()).isEqualTo(900);
    }

    /** As for a scheduler that has started after the resize. */
    @Test
    void whatAPodUsesBeyondItsLimitIsNotFree() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(100, 0, 1, false)));
        measured(164);
        assertThat(taken().memoryMiB()).as("the driver's own").isEqualTo(100);
        measured(700);
        measured(500);
        assertThat(taken().memoryMiB()).isEqualTo(700);
        assertThat(ledger.commit(pod("b"), "n1", HALF, 1)).isInstanceOf(Conflict.class);
        measured(100);
        assertThat(taken().memoryMiB()).isEqualTo(100);
    }

    /** One container uses less than both may, and the other one may still use its part. */
    @Test
    void aContainersLimitIsNotWhatAnotherOneDoesNotUse() {
        ledger.observeBound(BoundPods.of(pod("a"), "n1", 1, share("main", 500), share("other", 400)));
        BoundPod smaller =
                BoundPods.of(pod("a"), "n1", 1, 2, HostResources.NONE, share("main", 100), share("other", 400));
        ledger.observeBound(smaller);
        now.addAndGet(Excess.SETTLES.toNanos());
        measured(300);
        assertThat(taken().memoryMiB()).isEqualTo(900);
        measured(100);
        assertThat(taken().memoryMiB()).isEqualTo(500);
    }

    private Holding view(String uid) {
        return ledger.view("n1").orElseThrow().holdings().stream()
                .filter(holding -> holding.pod().uid().equals(uid))
                .findFirst()
                .orElseThrow();
    }

    private void shrink(int version, int memoryMiB) {
        ledger.observeBound(BoundPods.of(
                pod("a"),
                "n1",
                1,
                version - 1,
                HostResources.NONE,
                BoundPods.main(uuid(1, 0), new GpuAmount(memoryMiB, 10, 1, false))));
    }

    /** What the container main of pod a uses. */
    private void measured(int mebibytes) {
        var use = BoundPods.usage(
                new PodContainer("default", "a", "a", "main"),
                uuid(1, 0),
                OptionalLong.of(1L << 40),
                OptionalLong.of((long) mebibytes << 20));
        ledger.observe(
                new UsageReport(Instant.EPOCH, "n1", mebibytes == 0 ? List.of() : List.of(use), List.of(), List.of()),
                now.get());
    }

    @Test
    void whatAContainerUsesOfOneGpuIsNotItsUseOfAnother() {
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000), gpu(1, 1, 1000)));
        var amount = new GpuAmount(100, 0, 1, false);
        ledger.observeBound(BoundPods.of(
                pod("a"),
                "n1",
                1,
                new ContainerShare(
                        "main",
                        ContainerKind.APP,
                        new Vgpus(List.of(BoundPods.vgpu(uuid(1, 0), amount), BoundPods.vgpu(uuid(1, 1), amount))))));
        measured(700);
        assertThat(LedgerInvariants.taken(ledger))
                .containsEntry(uuid(1, 0), new GpuAmount(700, 0, 1, false))
                .containsEntry(uuid(1, 1), amount);
        assertThat(ledger.resize("a", List.of(new ContainerShareChange("main", 1001, null, null))))
                .isInstanceOf(Resizing.Refused.class);
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000)));
        assertThat(ledger.resize("a", List.of(new ContainerShareChange("main", 101, null, null))))
                .isEqualTo(new Resizing.Refused("its node no longer shares GPU " + uuid(1, 1)));
    }

    @Test
    void aRefusedResizeLeavesNoTrace() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(500, 20, 1, false)));
        ledger.resize("a", List.of(new ContainerShareChange("main", 900, null, null)));
        ledger.rollbackResize("a", 0);
        assertThat(taken().memoryMiB()).isEqualTo(900);
        ledger.rollbackResize("a", 1);
        assertThat(taken()).isEqualTo(new GpuAmount(500, 20, 1, false));
        assertThat(told).containsExactly("freed n1");
    }

    @Test
    void aPodGrowsOnlyIntoFreeCapacityAndCanAlwaysShrink() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(500, 20, 1, false)));
        ledger.observeBound(bound("b", "n1", uuid(1, 0), new GpuAmount(400, 50, 1, false)));
        assertThat(ledger.resize("a", List.of(new ContainerShareChange("main", 601, null, null))))
                .isEqualTo(new Resizing.Refused("GPU " + uuid(1, 0)
                        + " has 600 MiB and 50 % of the cores at most for this pod, which is to hold 601 MiB and 20 % of"
                        + " the cores"));
        assertThat(ledger.resize("a", List.of(new ContainerShareChange("main", null, 51, null))))
                .isInstanceOf(Resizing.Refused.class);
        assertThat(ledger.resize("a", List.of(new ContainerShareChange("main", 500, 20, CorePolicy.FIXED))))
                .isEqualTo(new Resizing.Unchanged());
        ledger.putNode("n1", new NodeFacts.Unavailable("for a while"));
        assertThat(ledger.resize("b", List.of(new ContainerShareChange("main", 401, null, null))))
                .isEqualTo(new Resizing.Refused("its node no longer shares GPU " + uuid(1, 0)));
        for (Integer[] smaller : new Integer[][] {{null, 0}, {1, null}, {1, 0}}) {
            assertThat(ledger.resize("b", List.of(new ContainerShareChange("main", smaller[0], smaller[1], null))))
                    .isInstanceOf(Resizing.Prepared.class);
            ledger.rollbackResize("b", 1);
        }
        assertThat(ledger.resize("c", List.of())).isEqualTo(new Resizing.Unknown());
    }

    @Test
    void noContainerGrowsBeyondThePhysicalMemoryOfItsGpu() {
        NodeFacts twice = sharing(CORE_MEMORY, new Scaling(200));
        ledger.putNode("n1", twice);
        ledger.observeBound(BoundPods.of(pod("a"), "n1", 1, share("one", 800), share("other", 800)));
        assertThat(ledger.resize("a", List.of(new ContainerShareChange("one", 1001, null, null))))
                .isEqualTo(new Resizing.Refused("GPU " + uuid(1, 0)
                        + " itself has 1000 MiB, whatever its node's scaling, and no container gets more of it; one is to"
                        + " hold 1001 MiB"));
        assertThat(ledger.resize("a", exchange(1001)))
                .as("together they hold no more than before")
                .isInstanceOf(Resizing.Refused.class);
        ledger.putNode("n1", new NodeFacts.Unavailable("for a while"));
        assertThat(ledger.resize("a", exchange(1000)))
                .isEqualTo(new Resizing.Refused("its node no longer shares GPU " + uuid(1, 0)));
        ledger.putNode("n1", twice);
        assertThat(ledger.resize("a", exchange(1000))).isInstanceOf(Resizing.Prepared.class);
    }

    private static List<ContainerShareChange> exchange(int memoryMiB) {
        return List.of(
                new ContainerShareChange("one", memoryMiB, null, null),
                new ContainerShareChange("other", 100, null, null));
    }

    @Test
    void onAGpuSharedByMemoryCoresCanOnlyBeSetToZero() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(500, 20, 1, false)));
        ledger.putNode("n1", sharing(MEMORY, Scaling.ONE));
        for (int cores : new int[] {10, 30}) {
            assertThat(ledger.resize("a", List.of(new ContainerShareChange("main", 100, cores, null))))
                    .isEqualTo(new Resizing.Refused("GPU " + uuid(1, 0)
                            + " is shared by memory alone, so its cores are neither reserved nor limited; leave cores"
                            + " out, or set them to 0"));
        }
        assertThat(ledger.resize("a", List.of(new ContainerShareChange("main", 600, null, null))))
                .isInstanceOf(Resizing.Prepared.class);
        ledger.rollbackResize("a", 1);
        assertThat(ledger.resize("a", List.of(new ContainerShareChange("main", null, 0, null))))
                .isInstanceOf(Resizing.Prepared.class);
    }

    @Test
    void anImpossibleResizeIsRefusedWithWhatIsPossible() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(500, 20, 1, false)));
        ledger.observeBound(bound("w", "n2", uuid(2, 0), new GpuAmount(1000, 0, 1, true)));
        assertThatThrownBy(() -> ledger.resize("a", List.of(new ContainerShareChange("side", 1, null, null))))
                .hasMessage("container side holds no GPU; those that do: main");
        assertThatThrownBy(() -> ledger.resize("a", List.of(new ContainerShareChange("main", 0, null, null))))
                .hasMessageContaining("memory from 1");
        assertThatThrownBy(() -> ledger.resize("w", List.of(new ContainerShareChange("main", 1, null, null))))
                .hasMessageContaining("a whole card cannot be resized");
        assertThat(LedgerInvariants.unconfirmed(ledger)).isEmpty();
    }

    private GpuAmount taken() {
        return Objects.requireNonNull(LedgerInvariants.taken(ledger).get(uuid(1, 0)));
    }

    @Test
    void aGpuThatReappearsIsAsFullAsBefore() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false)));
        ledger.putNode("n1", sharing(10));
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000)));
        assertThat(ledger.feasibility("n1", "b", HALF)).isInstanceOf(Feasibility.Refused.class);
        ledger.removeNode("n1");
        assertThat(ledger.feasibility("n1", "b", HALF))
                .isEqualTo(new Feasibility.Refused("the Aliquot scheduler does not know the node yet", true));
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000)));
        assertThat(ledger.feasibility("n1", "b", HALF)).isInstanceOf(Feasibility.Refused.class);
    }

    @Test
    void aRemovedNodeIsDroppedWithItsLastPod() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(300, 0, 1, false)));
        ledger.observeBound(bound("b", "n1", uuid(1, 0), new GpuAmount(300, 0, 1, false)));
        ledger.removeNode("n1");
        ledger.observeEnded("a");
        assertThat(ledger.nodeNames()).contains("n1");
        ledger.deletedBeforeEnd("b");
        assertThat(ledger.nodeNames()).contains("n1");
        now.addAndGet(Ledger.WITHOUT_NODE.toNanos() + 1);
        ledger.expire();
        assertThat(ledger.nodeNames()).containsExactly("n2");
        ledger.removeNode("n2");
        ledger.removeNode("n3");
        ledger.reserve(pod("c"), "n4", HALF);
        ledger.setAgentReady("n5", false);
        assertThat(ledger.nodeNames()).isEmpty();
        assertThat(ledger.nodeOf("c")).isEmpty();
    }

    @Test
    void anAgentThatIsNotReadyIsKnownBeforeItsNode() {
        ledger.setAgentReady("n1", false);
        ledger.setAgentReady("n3", false);
        ledger.removeNode("n1");
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000)));
        ledger.putNode("n3", sharing(10, gpu(3, 0, 1000)));
        assertThat(ledger.feasibility("n1", "a", HALF)).isInstanceOf(Feasibility.Refused.class);
        assertThat(ledger.feasibility("n3", "a", HALF)).isInstanceOf(Feasibility.Refused.class);
        ledger.setAgentReady("n1", true);
        assertThat(ledger.feasibility("n1", "a", HALF)).isInstanceOf(Feasibility.Fits.class);
    }

    @Test
    void aMissingAgentIsForgottenWithItsNode() {
        ledger.setAgentReady("n1", false);
        ledger.setAgentMissing("n1");
        assertThat(ledger.feasibility("n1", "a", HALF)).isInstanceOf(Feasibility.Refused.class);
        ledger.removeNode("n1");
        ledger.setAgentMissing("n1");
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000)));
        assertThat(ledger.feasibility("n1", "a", HALF)).isInstanceOf(Feasibility.Fits.class);
    }

    @Test
    void aNodeRecreatedWithOtherGpusHasCapacityOnThoseOnly() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false)));
        ledger.removeNode("n1");
        ledger.putNode("n1", sharing(10, gpu(1, 1, 1000)));
        assertThat(ledger.commit(pod("b"), "n1", WHOLE, 1)).isInstanceOf(Granted.class);
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000), gpu(1, 1, 1000)));
        assertThat(ledger.feasibility("n1", "c", HALF)).isInstanceOf(Feasibility.Refused.class);
        ledger.observeEnded("a");
        assertThat(ledger.feasibility("n1", "c", WHOLE)).isInstanceOf(Feasibility.Fits.class);
    }

    @Test
    void aPodRecreatedUnderItsNameIsAnotherPod() {
        var again = new PodId("default", "a", "another uid");
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(400, 0, 1, false)));
        assertThat(ledger.commit(again, "n1", HALF, 9)).isInstanceOf(Granted.class);
        ledger.deletedBeforeEnd("a");
        assertThat(taken()).as("the old one's containers may still run").isEqualTo(new GpuAmount(900, 0, 2, false));
        ledger.observeEnded("a");
        assertThat(taken()).isEqualTo(new GpuAmount(500, 0, 1, false));
        ledger.observeEnded("a");
        assertThat(ledger.assumedNode("another uid")).contains("n1");
    }

    @Test
    void aPodMayBeKnownBeforeItsNode() {
        ledger.observeBound(bound("a", "n3", uuid(3, 0), new GpuAmount(800, 0, 1, false)));
        ledger.putNode("n3", sharing(10, gpu(3, 0, 1000)));
        assertThat(ledger.feasibility("n3", "b", HALF)).isInstanceOf(Feasibility.Refused.class);
    }

    @Test
    void aNodeLeftOutRefusesWithItsReasonAndKeepsItsPods() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false)));
        ledger.putNode("n1", new NodeFacts.Unavailable("the node is not labelled gpu=on"));
        assertThat(ledger.feasibility("n1", "b", HALF))
                .isEqualTo(new Feasibility.Refused("the node is not labelled gpu=on", true));
        assertThat(ledger.commit(pod("b"), "n1", HALF, 1)).isEqualTo(new Conflict("the node is not labelled gpu=on"));
    }

    @Test
    void aPodReadBesideTheWatchCountsUntilTheWatchOrAnotherReadDecides() {
        ledger.assume(bound("a", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false)));
        assertThat(ledger.feasibility("n1", "b", HALF)).isInstanceOf(Feasibility.Refused.class);
        assertThat(ledger.commit(pod("a"), "n1", HALF, 9)).isEqualTo(new AlreadyBound("n1"));
        assertThat(ledger.assumedFor(Duration.ZERO)).containsExactly(pod("a"));
        ledger.assume(BoundPods.of(pod("a"), "n1", 2, BoundPods.main(uuid(1, 0), new GpuAmount(700, 0, 1, false))));
        assertThat(ledger.assumedFor(Duration.ZERO)).as("read twice").containsExactly(pod("a"));
        ledger.observeBound(
                BoundPods.of(pod("a"), "n1", 2, BoundPods.main(uuid(1, 0), new GpuAmount(700, 0, 1, false))));
        assertThat(ledger.assumedFor(Duration.ZERO)).isEmpty();
        ledger.discardAssumed("a");
        assertThat(ledger.nodeOf("a")).as("the watch knows better").contains("n1");
        ledger.observeEnded("a");
        ledger.assume(bound("a", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false)));
        ledger.discardAssumed("a");
        assertThat(ledger.feasibility("n1", "b", WHOLE)).isInstanceOf(Feasibility.Fits.class);
    }

    @Test
    void anOverallocatedGpuIsReported() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false)));
        ledger.observeBound(bound("b", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false)));
        ledger.observeBound(bound("b", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false)));
        assertThat(told).containsExactly("oversold n1 " + uuid(1, 0));
        assertThat(ledger.holders("n1", uuid(1, 0))).containsExactlyInAnyOrder(pod("a"), pod("b"));
    }

    @Test
    void aGpuWhoseCapacityFallsBelowItsAllocationIsReported() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(400, 0, 1, false)));
        ledger.observeBound(bound("b", "n1", uuid(1, 0), new GpuAmount(400, 0, 1, false)));
        ledger.putNode("n1", sharing(2, gpu(1, 0, 1000)));
        assertThat(told).doesNotContain("oversold n1 " + uuid(1, 0));
        ledger.putNode("n1", sharing(2, gpu(1, 0, 700)));
        assertThat(told).contains("oversold n1 " + uuid(1, 0));
        told.clear();
        ledger.putNode("n1", sharing(1, gpu(1, 0, 1000)));
        assertThat(told).as("slots").contains("oversold n1 " + uuid(1, 0));
    }

    @Test
    void anOverallocatedGpuIsReportedAlsoIfItsPodsAreKnownBeforeItsNode() {
        ledger.observeBound(bound("a", "n3", uuid(3, 0), new GpuAmount(800, 0, 1, false)));
        ledger.observeBound(bound("b", "n3", uuid(3, 0), new GpuAmount(800, 0, 1, false)));
        assertThat(told).isEmpty();
        ledger.putNode("n3", sharing(10, gpu(3, 0, 1000)));
        assertThat(told).contains("oversold n3 " + uuid(3, 0));
    }

    @Test
    void aViewShowsFreeCapacityAndHoldings() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(300, 10, 1, false)));
        ledger.commit(pod("b"), "n1", HALF, 1);
        ledger.reserve(pod("c"), "n1", request("APP:main: gpumem=100"));
        NodeView view = ledger.view("n1").orElseThrow();
        assertThat(view.gpus()).extracting(GpuInfo::allocated).containsExactly(new GpuAmount(900, 10, 3, false));
        assertThat(view.holdings())
                .extracting(holding -> holding.pod().name() + " " + holding.state() + " "
                        + holding.shares().size())
                .containsExactlyInAnyOrder("a HELD 1", "b ASSUMED 1", "c RESERVED 0");
        assertThat(ledger.nodeNames()).containsExactlyInAnyOrder("n1", "n2");
        assertThat(ledger.view("n9")).isEmpty();
    }

    @Test
    void feasibilityWithoutOtherPodsChangesNothing() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false)));
        ledger.observeBound(bound("b", "n2", uuid(2, 0), new GpuAmount(800, 0, 1, false)));
        assertThat(ledger.feasibilityWithout("n1", "c", HALF, Set.of("b"))).isInstanceOf(Feasibility.Refused.class);
        assertThat(ledger.feasibilityWithout("n1", "c", WHOLE, Set.of("a", "b")))
                .isInstanceOf(Feasibility.Fits.class);
        assertThat(ledger.feasibility("n1", "c", HALF)).isInstanceOf(Feasibility.Refused.class);
    }

    @Test
    void aPreemptorsReservationLastsUntilItBinds() {
        ledger.observeBound(bound("victim", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false)));
        assertThat(ledger.reserveFor(pod("c"), "n1", HALF, Set.of())).isFalse();
        assertThat(ledger.reserveFor(pod("c"), "n1", HALF, Set.of("victim"))).isTrue();
        ledger.reserve(pod("c"), "n1", HALF);
        assertThat(ledger.feasibility("n1", "c", HALF))
                .as("the victim is still there")
                .isInstanceOf(Feasibility.Refused.class);
        ledger.observeEnded("victim");
        assertThat(ledger.feasibility("n1", "d", WHOLE)).isInstanceOf(Feasibility.Refused.class);
        assertThat(ledger.feasibility("n1", "c", HALF)).isInstanceOf(Feasibility.Fits.class);
        assertThat(ledger.commit(pod("c"), "n1", HALF, 1)).isInstanceOf(Granted.class);
        ledger.releaseReservation("c");
        assertThat(ledger.assumedNode("c")).contains("n1");
        assertThat(told).as("what is kept is not oversold").containsExactly("freed n1");
    }

    @Test
    void aPreemptorsReservationEndsWhenItExpiresOrIsReleased() {
        assertThat(ledger.reserveFor(pod("c"), "n1", WHOLE, Set.of())).isTrue();
        now.addAndGet(Ledger.PREEMPTOR_RESERVATION_TIME.toNanos());
        assertThat(ledger.reserveFor(pod("c"), "n1", WHOLE, Set.of())).isTrue();
        now.addAndGet(Ledger.PREEMPTOR_RESERVATION_TIME.toNanos());
        ledger.expire();
        assertThat(ledger.feasibility("n1", "d", WHOLE)).isInstanceOf(Feasibility.Refused.class);
        now.addAndGet(1);
        ledger.expire();
        assertThat(ledger.feasibility("n1", "d", WHOLE)).isInstanceOf(Feasibility.Fits.class);
        ledger.reserveFor(pod("c"), "n1", WHOLE, Set.of());
        ledger.releaseReservation("c");
        assertThat(ledger.feasibility("n1", "d", WHOLE)).isInstanceOf(Feasibility.Fits.class);
        assertThat(told).containsExactly("freed n1", "freed n1");
    }

    /** Regression: with a grace period of a year it held them for a year. */
    @Test
    void aPodDeletedByForceHoldsItsGpusUntilItsNodeHasNotHadItForLong() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false)));
        assertThat(ledger.awaitsPods("n1")).isFalse();
        ledger.deletedBeforeEnd("a");
        assertThat(ledger.awaitsPods("n1")).isTrue();
        assertThat(ledger.awaitsPods("n2")).isFalse();
        nodeHas("n1", "a", "b");
        nodeHas("n1", "b");
        for (int i = 0; i < 2; i++) {
            now.addAndGet(TEN_SECONDS);
            nodeHas("n1", "b");
        }
        ledger.deletedBeforeEnd("a");
        assertThat(ledger.feasibility("n1", "b", WHOLE)).isInstanceOf(Feasibility.Refused.class);
        now.addAndGet(TEN_SECONDS);
        assertThat(ledger.observe(pods("n1", "b"), now.get())).containsExactly(pod("a"));
        assertThat(ledger.feasibility("n1", "b", WHOLE)).isInstanceOf(Feasibility.Fits.class);
        assertThat(told).containsExactly("freed n1");
        assertThat(ledger.nodeOf("a")).isEmpty();
        assertThat(ledger.awaitsPods("n1")).isFalse();
    }

    @Test
    void aPodDeletedByForceThatStillRunsHoldsItsGpusForEver() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false)));
        ledger.deletedBeforeEnd("a");
        for (int i = 0; i < 3; i++) { // its kubelet is down, and so is its agent for a day
            nodeHas("n1", "a");
            now.addAndGet(Duration.ofDays(1).toNanos());
            ledger.expire();
        }
        for (int i = 0; i < 3; i++) { // it is seen again now and then
            for (int absent = 0; absent < 3; absent++) {
                nodeHas("n1");
                now.addAndGet(TEN_SECONDS);
            }
            nodeHas("n1", "a");
        }
        for (int i = 0; i < 3; i++) { // too few answers
            nodeHas("n1");
            now.addAndGet(DeletedPods.LONGEST_GAP.toNanos() + 1);
        }
        assertThat(ledger.feasibility("n1", "b", WHOLE)).isInstanceOf(Feasibility.Refused.class);
    }

    /** The pod may have been bound after the agent was asked. */
    @Test
    void whatANodeHadBeforeAPodWasDeletedSaysNothingAboutIt() {
        long before = now.get();
        now.addAndGet(1);
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false)));
        ledger.deletedBeforeEnd("a");
        assertThat(ledger.observe(pods("n1"), before)).isEmpty();
        now.addAndGet(DeletedPods.ABSENT.toNanos() - 2);
        assertThat(ledger.observe(pods("n1"), now.get())).isEmpty();
        assertThat(ledger.nodeOf("a")).contains("n1");
    }

    @Test
    void aPodThatABackupOfEtcdHasAgainIsHeldAlsoInAnOlderVersion() {
        BoundPod older = bound("a", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false));
        ledger.observeBound(BoundPods.leaving(older, Instant.MAX));
        ledger.deletedBeforeEnd("a");
        ledger.assume(older);
        assertThat(ledger.awaitsPods("n1"))
                .as("a read may be older than the deletion")
                .isTrue();

        ledger.observeBound(older);

        assertThat(ledger.awaitsPods("n1")).isFalse();
        assertThat(ledger.bound("a")).contains(older);
        assertThat(ledger.feasibility("n1", "b", WHOLE)).isInstanceOf(Feasibility.Refused.class);
    }

    @Test
    void aPodThatABackupOfEtcdHasUnboundIsBoundAgainWhenItsNodeHasNothingOfIt() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false)));
        ledger.deletedBeforeEnd("a");
        ledger.observeUnbound("a", 1);

        assertThat(ledger.commit(pod("a"), "n1", HALF, 1)).isEqualTo(new Unresolved("n1"));
        assertThat(ledger.commit(pod("a"), "n2", HALF, 1)).isEqualTo(new Unresolved("n1"));

        for (int i = 0; i < 3; i++) {
            nodeHas("n1");
            now.addAndGet(TEN_SECONDS);
        }
        ledger.observe(pods("n1"), now.get());
        assertThat(ledger.commit(pod("a"), "n1", HALF, 1)).isInstanceOf(Granted.class);
    }

    private void nodeHas(String node, String... uids) {
        assertThat(ledger.observe(pods(node, uids), now.get())).isEmpty();
    }

    private static UsageReport pods(String node, String... uids) {
        return new UsageReport(Instant.EPOCH, node, List.of(), List.of(), List.of())
                .withPods(Optional.of(Set.of(uids)));
    }

    @Test
    void aPodWithoutGpusDeletedByForceLeavesNoClaim() {
        ledger.observeBound(BoundPods.of(pod("a"), "n1", 1));
        ledger.reserve(pod("b"), "n1", WHOLE);
        ledger.deletedBeforeEnd("a");
        ledger.deletedBeforeEnd("b");
        ledger.deletedBeforeEnd("never heard of");
        assertThat(LedgerInvariants.unconfirmed(ledger)).isEmpty();
        assertThat(ledger.view("n1").orElseThrow().holdings()).isEmpty();
    }

    @Test
    void aGrantNamesGpusAsTheNodesRuntimeDoes() {
        var granted = (Granted) ledger.commit(pod("a"), "n1", HALF, 1);
        assertThat(Gpus.of(granted.containers(), "main").print())
                .isEqualTo(uuid(1, 0) + " memory=500Mi cores=0 policy=fixed context=0Mi\n");
        assertThat(granted.visibleDevices()).isEqualTo(new VisibleDevices("{uuid}"));
    }

    @Test
    void aPodOfHamiIsCountedExactlyOnceTheAgentListsIt() {
        ForeignHolder holder = new ForeignHolder("default/h", "nvidia.com/gpu", true);
        var pod = new ForeignPod(
                pod("h"),
                "n1",
                List.of(new ForeignVgpu(uuid(1, 0), new GpuAmount(600, 30, 1, false), new Mebibytes(1))));

        others(ledger, 0);
        ledger.observeForeign(pod);
        assertThat(ledger.feasibility("n1", "b", WHOLE))
                .as("an annotation alone takes nothing")
                .isInstanceOf(Feasibility.Fits.class);

        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000).withHolders(List.of(holder))));
        assertThat(ledger.feasibility("n1", "b", request("APP:main: gpumem=400")))
                .isInstanceOf(Feasibility.Fits.class);
        assertThat(ledger.feasibility("n1", "b", HALF))
                .isEqualTo(new Feasibility.Refused("no GPU with 500 MiB free", false));
        assertThat(ledger.feasibility("n1", "b", WHOLE)).isInstanceOf(Feasibility.Refused.class);

        told.clear();
        ledger.removeForeign("n1", "h");
        assertThat(ledger.feasibility("n1", "b", request("APP:main: gpumem=1")))
                .as("until the agent no longer lists it")
                .isInstanceOf(Feasibility.Refused.class);
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000)));
        assertThat(ledger.feasibility("n1", "b", WHOLE)).isInstanceOf(Feasibility.Fits.class);
        assertThat(told).contains("freed n1");
    }

    /** Regression: a pod whose owner named another GPU in HAMi's annotation lost the one that it uses. */
    @Test
    void whatAPodOfHamiUsesOfAGpuCountsWhateverItsRecordSays() {
        ForeignHolder holder = new ForeignHolder("default/h", "nvidia.com/gpu", true);
        NodeFacts facts = sharing(
                10,
                gpu(1, 0, 1000).withHolders(List.of(holder)),
                gpu(1, 1, 1000).withHolders(List.of(holder)));
        var namesAnother = new ForeignPod(
                pod("h"),
                "n1",
                List.of(new ForeignVgpu(uuid(1, 1), new GpuAmount(600, 0, 1, false), new Mebibytes(600))));
        for (Ledger replica : List.of(ledger, new Ledger(now::get, listener))) { // the second has started afterwards
            replica.putNode("n1", facts);
            replica.observeForeign(namesAnother);
            assertThat(replica.feasibility("n1", "b", request("APP:main: gpumem=1")))
                    .as("before it is measured")
                    .isInstanceOf(Feasibility.Refused.class);
            others(replica, 700);
            assertThat(replica.feasibility("n1", "b", request("APP:main: gpumem=401")))
                    .isInstanceOf(Feasibility.Refused.class);
            assertThat(replica.feasibility("n1", "b", request("APP:main: gpumem=300")))
                    .isInstanceOf(Feasibility.Fits.class);
            assertThat(replica.feasibility("n1", "b", WHOLE)).isInstanceOf(Feasibility.Refused.class);
            others(replica, 0);
            assertThat(replica.feasibility("n1", "b", WHOLE)).isInstanceOf(Feasibility.Fits.class);
        }
    }

    /** What processes outside of all shares use of the first GPU. */
    private static void others(Ledger ledger, int mebibytes) {
        var use = new UsageReport.OfGpu(
                uuid(1, 0),
                OptionalLong.empty(),
                OptionalLong.of((long) mebibytes << 20),
                OptionalInt.empty(),
                OptionalInt.empty(),
                OptionalDouble.empty());
        ledger.observe(new UsageReport(Instant.EPOCH, "n1", List.of(), List.of(use), List.of()), 0);
    }

    /** Regression: the annotation counted, which the pod's owner can rewrite. */
    @Test
    void aPodOfHamiCountsAtLeastAsItsLimitsSay() {
        ForeignHolder holder = new ForeignHolder("default/h", "nvidia.com/gpu", true);
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000).withHolders(List.of(holder))));
        var rewritten = new GpuAmount(1, 0, 1, false);

        var ofAQuarter = new ForeignVgpu(uuid(1, 0), rewritten, new Percentage(25));
        others(ledger, 0);
        ledger.observeForeign(new ForeignPod(pod("h"), "n1", List.of(ofAQuarter, ofAQuarter)));
        assertThat(ledger.feasibility("n1", "b", HALF)).isInstanceOf(Feasibility.Fits.class);
        assertThat(ledger.feasibility("n1", "b", request("APP:main: gpumem=501")))
                .isInstanceOf(Feasibility.Refused.class);

        var ofACard = new ForeignVgpu(uuid(1, 0), rewritten, new WholeCard());
        ledger.observeForeign(new ForeignPod(pod("h"), "n1", List.of(ofACard)));
        assertThat(ledger.feasibility("n1", "b", request("APP:main: gpumem=1")))
                .isInstanceOf(Feasibility.Refused.class);
    }

    /** Otherwise a user could share a GPU of NVIDIA's plugin by writing HAMi's annotation to the pod that holds it. */
    @Test
    void hamisRecordDoesNotOpenAGpuThatAPodHoldsThroughAnotherPlugin() {
        ForeignHolder holder = new ForeignHolder("default/h", "nvidia.com/gpu");
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000).withHolders(List.of(holder))));

        others(ledger, 0);
        ledger.observeForeign(new ForeignPod(
                pod("h"), "n1", List.of(new ForeignVgpu(uuid(1, 0), new GpuAmount(1, 0, 1, false), new Mebibytes(1)))));

        assertThat(ledger.feasibility("n1", "b", HALF)).isInstanceOf(Feasibility.Refused.class);
    }

    @Test
    void hamisRecordOfAGpuThatTheNodeLacksCountsNothing() {
        ForeignHolder holder = new ForeignHolder("default/h", "nvidia.com/gpu", true);
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000).withHolders(List.of(holder))));

        others(ledger, 0);
        ledger.observeForeign(new ForeignPod(
                pod("h"), "n1", List.of(new ForeignVgpu(uuid(7, 0), new GpuAmount(1, 0, 1, false), new Mebibytes(1)))));

        assertThat(ledger.feasibility("n1", "b", HALF)).isInstanceOf(Feasibility.Refused.class);
    }

    @Test
    void aPodOfAnotherProductHasNoClaimToResizeOrEvict() {
        ForeignHolder holder = new ForeignHolder("default/h", "nvidia.com/gpu", true);
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000).withHolders(List.of(holder))));
        others(ledger, 0);
        ledger.observeForeign(new ForeignPod(
                pod("h"),
                "n1",
                List.of(new ForeignVgpu(uuid(1, 0), new GpuAmount(2000, 0, 1, false), new Mebibytes(1)))));

        assertThat(ledger.holders("n1", uuid(1, 0))).isEmpty();
        assertThat(ledger.view("n1").orElseThrow().holdings()).isEmpty();
        assertThat(ledger.resize("h", List.of())).isInstanceOf(Resizing.Unknown.class);
        assertThat(told).noneMatch(event -> event.startsWith("over"));
    }

    @Test
    void aPodHoldsASharedGpuFromItsBindingOn() {
        ledger.observeBound(BoundPods.of(pod("without GPUs"), "n1", 1));
        ledger.reserve(pod("a"), "n1", HALF);
        ledger.reserveFor(pod("b"), "n1", HALF, Set.of());
        assertThat(ledger.holdsShares("n1")).isFalse();
        ledger.commit(pod("a"), "n1", HALF, 1);
        assertThat(ledger.holdsShares("n1")).isTrue();
        assertThat(ledger.holdsShares("n2")).isFalse();
        assertThat(ledger.holdsShares("n9")).isFalse();
        assertThat(ledger.holders("n1", uuid(1, 0))).containsExactly(pod("a"));
        assertThat(ledger.holders("n9", uuid(1, 0))).isEmpty();
    }

    @ParameterizedTest
    @CsvSource({
        "500, 50, false, 500, 50, false",
        "500, 50, false, 501, 50, true",
        "500, 50, false, 500, 51, true",
        "500,  0, true,  500,  0, true", // a whole card, and a share beside it
    })
    void podsOverallocateAGpuIfOneAmountExceedsItOrAWholeCardIsNotAlone(
            int memoryMiB, int cores, boolean exclusive, int otherMiB, int otherCores, boolean overallocated) {
        BoundPod one = bound("a", "n1", uuid(1, 0), new GpuAmount(memoryMiB, cores, 1, exclusive));
        BoundPod other = bound("b", "n1", uuid(1, 0), new GpuAmount(otherMiB, otherCores, 1, false));
        assertThat(ledger.overallocated("n1", uuid(1, 0), List.of(one, other))).isEqualTo(overallocated);
        assertThat(ledger.overallocated("n1", uuid(1, 0), List.of(one))).isFalse();
        assertThat(ledger.overallocated("n1", uuid(1, 9), List.of(one, other))).isFalse();
        assertThat(ledger.overallocated("n9", uuid(1, 0), List.of(one, other))).isFalse();
        ledger.putNode("n1", sharing(1, gpu(1, 0, 2000)));
        assertThat(ledger.overallocated("n1", uuid(1, 0), List.of(one, other)))
                .as("a single slot")
                .isTrue();
    }

    @Test
    void theRequestsOfBoundPodsAreListedFromTheOldestPodOn() {
        var large = new GpuAmount(800, 20, 1, false);
        var small = new GpuAmount(100, 0, 1, false);
        ledger.observeBound(BoundPods.of(pod("c"), "n1", 0, 5, HostResources.NONE, BoundPods.main(uuid(1, 0), large)));
        ledger.observeBound(BoundPods.of(pod("b"), "n2", 0, 4, HostResources.NONE, BoundPods.main(uuid(2, 0), small)));
        ledger.observeBound(
                BoundPods.of(pod("a"), "n2", 0, 5, new HostResources(7, 7), BoundPods.main(uuid(2, 0), small)));
        ledger.observeBound(BoundPods.of(pod("without GPUs"), "n1", 1));
        ledger.commit(pod("not seen yet"), "n1", request("APP:main: gpumem=100"), 1);
        assertThat(ledger.boundRequests())
                .containsExactly(
                        request("APP:main: gpumem=100"),
                        request("APP:main: gpumem=100").withHostRequests(new HostResources(7, 7)),
                        request("APP:main: gpumem=800 gpucores=20"));
    }

    @Test
    void theMostGpusOfANodeFollowTheNodes() {
        assertThat(ledger.maxGpusPerNode()).isEqualTo(1);
        ledger.putNode("n3", sharing(10, gpu(3, 0, 1000), gpu(3, 1, 1000)));
        assertThat(ledger.maxGpusPerNode()).isEqualTo(2);
        assertThat(ledger.nodeCount()).isEqualTo(3);
        PodGpuRequest all = request("APP:main: gpumem-percentage=100");
        ledger.putNode("n3", sharing(10, gpu(3, 0, 5000), gpu(3, 1, 1000)));
        assertThat(ledger.models().demand(all).gpuMiB()).isEqualTo(5000);
        ledger.removeNode("n3");
        ledger.putNode("n1", sharing(10));
        ledger.putNode("n2", sharing(10));
        assertThat(ledger.models().demand(all).gpuMiB())
                .as("no node has the model")
                .isEqualTo(1);
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000)));
        assertThat(ledger.maxGpusPerNode()).isEqualTo(1);
        assertThat(ledger.nodeCount()).isEqualTo(2);
    }

    @Test
    void freeCapacitiesAreThoseOfNodesThatTakePods() {
        assertThat(ledger.freeCapacities()).hasSize(2);
        ledger.setAgentReady("n1", false);
        assertThat(ledger.freeCapacities()).hasSize(1);
        ledger.commit(pod("a"), "n2", HALF.withHostRequests(new HostResources(100, 0)), 1);
        FreeCapacity free = ledger.freeCapacities().get(0);
        assertThat(free.gpuMiB(0)).isEqualTo(500);
        assertThat(free.cpuMillis()).isEqualTo(900);
        ledger.putNode("n2", new NodeFacts.Unavailable("for a while"));
        assertThat(ledger.freeCapacities()).isEmpty();
        assertThat(ledger.account("n2").orElseThrow().freeCapacity()).isEmpty();
        assertThat(ledger.account("n9")).isEmpty();
    }

    @Test
    void theGpusOfANodeAreAnotherOwnersOnlyIfThatIsCertain() {
        assertThat(ledger.sharesGpus("n1")).isTrue();
        assertThat(ledger.sharesGpus("n9")).isTrue();
        ledger.putNode("n1", new NodeFacts.Unavailable("no inventory yet"));
        assertThat(ledger.sharesGpus("n1")).isTrue();
        ledger.putNode("n1", NodeFacts.Unavailable.notLabeled(new NodeLabel("gpu", "on")));
        assertThat(ledger.sharesGpus("n1")).isFalse();
        assertThat(ledger.view("n1").orElseThrow().unavailableReason()).isEqualTo("not labelled gpu=on");
    }

    @Test
    void theRevisionDiffersAfterEachChangeOfTheView() {
        assertThat(ledger.revision("n9")).isEqualTo(-1);
        var revisions = new ArrayList<Long>();
        for (Runnable change : List.<Runnable>of(
                () -> {},
                () -> ledger.reserve(pod("a"), "n1", HALF),
                () -> ledger.commit(pod("a"), "n1", HALF, 1),
                () -> ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(500, 0, 1, false))),
                () -> ledger.setAgentReady("n1", false),
                () -> ledger.putNode("n1", sharing(9, gpu(1, 0, 1000))),
                () -> ledger.observeEnded("a"))) {
            change.run();
            revisions.add(ledger.revision("n1"));
        }
        assertThat(revisions).doesNotHaveDuplicates();
    }

    /** The answers of a node are cached until its changes are. */
    @Test
    void aClaimThatOnlyChangesItsStateLeavesTheAnswersToPodsValid() {
        ledger.reserve(pod("a"), "n1", HALF);
        NodeAccountView account = ledger.account("n1").orElseThrow();
        long changes = account.changes();
        ledger.commit(pod("a"), "n1", HALF, 1);
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(500, 0, 1, false)));
        assertThat(account.changes()).isEqualTo(changes);
        ledger.observeEnded("a");
        assertThat(account.changes()).isNotEqualTo(changes);
        ledger.removeNode("n1");
        assertThat(account.changes()).isEqualTo(NodeAccountView.CLOSED);
    }

    @Test
    void theConnectedScoringChoosesTheGpuOfAPodWithThePolicyFragmentation() {
        ledger.putNode("n1", sharing(10, gpu(1, 0, 2000), gpu(1, 1, 1000)));
        PodGpuRequest pod = request(Map.of("aliquot.io/gpu-placement", "fragmentation"), "APP:main: gpumem=500");
        assertThat(gpuOf((Granted) ledger.commit(pod("a"), "n1", pod, 1))).isEqualTo(uuid(1, 1));
        ledger.connect(candidates -> candidates.gpu(candidates.count() - 1));
        assertThat(gpuOf((Granted) ledger.commit(pod("b"), "n1", pod, 1))).isEqualTo(uuid(1, 0));
        PodGpuRequest two = request(Map.of("aliquot.io/gpu-placement", "fragmentation"), "APP:main: gpumem=900");
        assertThat(ledger.commit(pod("c"), "n1", two, 1)).isInstanceOf(Granted.class);
        assertThat(ledger.commit(pod("d"), "n1", two, 1)).isEqualTo(new Conflict("no GPU with 900 MiB free"));
    }

    private static String gpuOf(Granted granted) {
        return Gpus.of(granted.containers(), "main").uuids().get(0);
    }

    @Test
    void ofANodesViewThePodsThatGoAreLeftOut() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(300, 10, 1, false)));
        ledger.observeBound(bound("b", "n1", uuid(1, 0), new GpuAmount(200, 20, 1, false)));
        NodeView view = ledger.view("n1").orElseThrow();
        assertThat(view.gpusWithout(Set.of("a")))
                .extracting(GpuInfo::allocated)
                .containsExactly(new GpuAmount(200, 20, 1, false));
        assertThat(view.gpusWithout(Set.of("a", "b")))
                .extracting(GpuInfo::allocated)
                .containsExactly(GpuAmount.NOTHING);
        assertThat(view.gpusWithout(Set.of("c"))).isEqualTo(view.gpus());
    }

    @Test
    void aWholeCardThatIsReservedForAPreemptorStaysOneWithoutItsVictim() {
        ledger.observeBound(bound("victim", "n1", uuid(1, 0), new GpuAmount(1000, 0, 1, true)));
        assertThat(ledger.reserveFor(pod("c"), "n1", WHOLE, Set.of("victim"))).isTrue();
        NodeView view = ledger.view("n1").orElseThrow();
        assertThat(view.gpusWithout(Set.of("victim")))
                .extracting(GpuInfo::allocated)
                .containsExactly(new GpuAmount(1000, 0, 1, true));
        assertThat(view.gpusWithout(Set.of("victim", "c")))
                .extracting(GpuInfo::allocated)
                .containsExactly(GpuAmount.NOTHING);
    }

    @Test
    void eventsAreTakenOnceAndThoseOfNodesThatAreGoneAreDropped() {
        var events = new LedgerEvents();
        for (String node : List.of("n1", "n2")) {
            events.capacityFreed(node);
            events.overallocated(node, uuid(1, 0));
        }
        events.keepOnly(Set.of("n1"));
        assertThat(events.takeFreed()).containsExactly("n1");
        assertThat(events.takeFreed()).isEmpty();
        assertThat(events.takeOverallocated()).containsExactly(new LedgerEvents.OverallocatedGpu("n1", uuid(1, 0)));
        assertThat(events.takeOverallocated()).isEmpty();
    }

    @Test
    void aNodeThatChangesOrWhoseAgentBecomesReadyMayHaveCapacity() {
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000)));
        ledger.setAgentReady("n1", true);
        ledger.putNode("n1", new NodeFacts.Unavailable("for a while"));
        ledger.setAgentMissing("n1");
        ledger.setAgentReady("n1", false);
        assertThat(told).isEmpty();
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000)));
        ledger.setAgentReady("n1", true);
        assertThat(told).containsExactly("freed n1", "freed n1");
    }

    @Test
    void aPodThatTheWatchReportsOnAnotherNodeLeavesTheFirstOne() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(500, 0, 1, false)));
        ledger.observeBound(
                BoundPods.of(pod("a"), "n2", 2, BoundPods.main(uuid(2, 0), new GpuAmount(500, 0, 1, false))));
        assertThat(ledger.nodeOf("a")).contains("n2");
        assertThat(ledger.view("n1").orElseThrow().holdings()).isEmpty();
        assertThat(told).containsExactly("freed n1");
    }

    @Test
    void aNewerVersionThatIsReadOfAPodThatTheWatchReportedNeedsNoConfirmation() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(500, 0, 1, false)));
        ledger.assume(BoundPods.of(pod("a"), "n1", 2, BoundPods.main(uuid(1, 0), new GpuAmount(600, 0, 1, false))));
        assertThat(taken().memoryMiB()).isEqualTo(600);
        assertThat(ledger.assumedNode("a")).isEmpty();
        assertThat(view("a").isShareOf(uuid(1, 0))).isTrue();
        assertThat(view("a").isShareOf(uuid(2, 0))).isFalse();
        assertThat(told).as("its former share").containsExactly("freed n1");
    }

    @Test
    void aReservationEndsWhereThePodNoLongerFitsAndOneOfAPreemptorStays() {
        ledger.reserve(pod("a"), "n1", HALF);
        ledger.reserve(pod("a"), "n1", request("APP:main: gpumem=1001"));
        assertThat(ledger.nodeOf("a")).isEmpty();
        assertThat(told).containsExactly("freed n1");
        ledger.reserve(pod("a"), "n1", HALF);
        ledger.reserve(pod("a"), "n2", HALF);
        assertThat(ledger.nodeOf("a")).contains("n2");
        assertThat(ledger.view("n1").orElseThrow().holdings()).isEmpty();
        ledger.reserveFor(pod("c"), "n1", HALF, Set.of());
        assertThat(ledger.reserveFor(pod("c"), "n2", WHOLE, Set.of())).isFalse();
        assertThat(ledger.nodeOf("c")).contains("n1");
    }

    /** GPUs count for 80 %, CPU and memory for 10 % each; the GPU is at most half full: no cores are requested. */
    @Test
    void theFullnessOfANodeIsOfItsGpusAndOfTheCpuAndMemoryThatOtherPodsRequest() {
        ledger.observeBound(BoundPods.of(pod("other"), "n1", 0, 0, new HostResources(500, 250)));
        PodGpuRequest pod = HALF.withHostRequests(new HostResources(300, 300));
        double fullness = 0.8 * 0.25 + 0.1 * 0.5 + 0.1 * 0.25;
        assertThat(fullness("n1", "a", pod)).isCloseTo(fullness, within(1e-5));
        ledger.reserve(pod("a"), "n1", pod);
        assertThat(fullness("n1", "a", pod)).as("its own reservation").isCloseTo(fullness, within(1e-5));
        ledger.putNode(
                "n2",
                new NodeFacts.Sharing(Gpus.inventory(10, gpu(2, 0, 1000)), Placement.BINPACK, HostResources.NONE));
        assertThat(fullness("n2", "b", HALF)).as("without CPU and memory").isCloseTo(0.8 * 0.25 + 0.2, within(1e-5));
    }

    private double fullness(String node, String uid, PodGpuRequest pod) {
        return ((Feasibility.Fits) ledger.feasibility(node, uid, pod)).fullness();
    }

    @Test
    void aPodsCandidatesDisregardItsOwnReservation() {
        PodGpuRequest pod = request(Map.of("aliquot.io/gpu-placement", "fragmentation"), "APP:main: gpumem=400")
                .withHostRequests(new HostResources(300, 0));
        ledger.reserve(pod("a"), "n1", pod);
        var candidates = new CandidatePlacements(pod, ledger.models());
        NodeAccountView account = ledger.account("n1").orElseThrow();
        account.feasibility("a", pod, Set.of(), Optional.of(candidates));
        assertThat(candidates.before().gpuMiB(0)).isEqualTo(1000);
        assertThat(candidates.before().cpuMillis()).isEqualTo(1000);
        account.feasibility("another", pod, Set.of(), Optional.of(candidates));
        assertThat(candidates.before().gpuMiB(0)).isEqualTo(600);
        assertThat(candidates.after(0).cpuMillis()).isEqualTo(400);
    }

    @Test
    void aNodeSaysWhyItTakesNoPods() {
        assertThat(ledger.view("n1").orElseThrow().unavailableReason()).isEmpty();
        ledger.setAgentReady("n1", false);
        assertThat(ledger.view("n1").orElseThrow().unavailableReason())
                .isEqualTo("the node's device plugin is not ready or does not answer");
        ledger.putNode("n1", new NodeFacts.Unavailable("for a while"));
        assertThat(ledger.view("n1").orElseThrow().unavailableReason()).isEqualTo("for a while");
    }

    @Test
    void onlyAPodWithGpusThatTheWatchReportedLingersAfterItsDeletion() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(100, 0, 1, false)));
        ledger.observeBound(BoundPods.of(pod("web"), "n1", 1));
        ledger.commit(pod("b"), "n1", HALF, 1);
        assertThat(ledger.deletedBeforeEnd("a")).isTrue();
        assertThat(ledger.deletedBeforeEnd("web")).isFalse();
        assertThat(ledger.deletedBeforeEnd("b")).isFalse();
        assertThat(ledger.deletedBeforeEnd("unknown")).isFalse();
        assertThat(ledger.nodeOf("web")).isEmpty();
        assertThat(ledger.nodeOf("b")).isEmpty();
        assertThat(ledger.view("n1").orElseThrow().holdings()).hasSize(1);
    }

    @Test
    void twoReportsAtMostTheLongestGapApartAreOfOneAbsence() {
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(800, 0, 1, false)));
        ledger.deletedBeforeEnd("a");
        nodeHas("n1");
        now.addAndGet(DeletedPods.LONGEST_GAP.toNanos());
        nodeHas("n1");
        now.addAndGet(DeletedPods.ABSENT.minus(DeletedPods.LONGEST_GAP).toNanos());
        assertThat(ledger.observe(pods("n1"), now.get())).containsExactly(pod("a"));
    }

    @Test
    void aResizeChangesTheNamedContainerAloneAndKeepsWhatItDoesNotName() {
        ledger.observeBound(BoundPods.of(pod("a"), "n1", 1, share("main", 500), share("other", 400)));
        var resized = (Resizing.Prepared)
                ledger.resize("a", List.of(new ContainerShareChange("main", null, 30, CorePolicy.ELASTIC)));
        assertThat(resized.shares().get(0).vgpus().print())
                .isEqualTo(uuid(1, 0) + " memory=500Mi cores=30 policy=elastic context=0Mi\n");
        assertThat(resized.shares().get(1)).isEqualTo(share("other", 400));
        ledger.rollbackResize("a", 1);
        var again = (Resizing.Prepared) ledger.resize("a", List.of(new ContainerShareChange("other", 100, null, null)));
        assertThat(again.shares().get(0)).isEqualTo(share("main", 500));
    }

    @Test
    void foreignPodsFreeOrTakeCapacityWhenTheirReportsChange() {
        ForeignHolder holder = new ForeignHolder("default/h", "nvidia.com/gpu", true);
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000).withHolders(List.of(holder))));
        var foreign = new ForeignPod(
                pod("h"),
                "n1",
                List.of(new ForeignVgpu(uuid(1, 0), new GpuAmount(300, 0, 1, false), new Mebibytes(1))));
        others(ledger, 0);
        told.clear();
        ledger.observeForeign(foreign);
        ledger.observeForeign(foreign);
        assertThat(told).containsExactly("freed n1");
        others(ledger, 400);
        others(ledger, 400);
        assertThat(told).as("another measurement").containsExactly("freed n1", "freed n1");
        ledger.observeBound(bound("a", "n1", uuid(1, 0), new GpuAmount(500, 0, 1, false)));
        assertThat(taken()).as("with a pod of its own").isEqualTo(new GpuAmount(900, 0, 2, false));
        told.clear();
        ledger.removeForeign("n1", "unknown");
        assertThat(told).isEmpty();
        ledger.removeForeign("n1", "h");
        ledger.removeForeign("n1", "h");
        assertThat(told).containsExactly("freed n1");
        ledger.putNode("n2", new NodeFacts.Unavailable("for a while"));
        ledger.observeForeign(new ForeignPod(pod("h"), "n2", List.of()));
        assertThat(told).as("not of a node that takes no pods").containsExactly("freed n1");
        ledger.removeForeign("n2", "h");
    }

    public static NodeFacts sharing(int slots, Gpu... gpus) {
        return new NodeFacts.Sharing(Gpus.inventory(slots, gpus), Placement.BINPACK, new HostResources(1000, 1000));
    }

    /** A node with one GPU of 1000 MiB and this scaling. */
    private static NodeFacts sharing(SharingMode by, Scaling memory) {
        var inventory = new Inventory(new VisibleDevices("{uuid}"), memory, Scaling.ONE, 10, List.of(gpu(1, 0, 1000)));
        return new NodeFacts.Sharing(
                new NodeGpus(inventory, by, Set.of()), Placement.BINPACK, new HostResources(1000, 1000));
    }

    private static ContainerShare share(String container, int memoryMiB) {
        var amount = new GpuAmount(memoryMiB, 0, 1, false);
        return new ContainerShare(container, ContainerKind.APP, new Vgpus(List.of(BoundPods.vgpu(uuid(1, 0), amount))));
    }

    public static PodId pod(String name) {
        return new PodId("default", name, name);
    }

    public static BoundPod bound(String name, String node, String gpu, GpuAmount amount) {
        return BoundPods.of(pod(name), node, 1, BoundPods.main(gpu, amount));
    }
}
