package io.aliquot.scheduler.ledger;

import static io.aliquot.scheduler.ledger.QuotaResource.CORES;
import static io.aliquot.scheduler.ledger.QuotaResource.MEMORY;
import static io.aliquot.scheduler.ledger.QuotaResource.VGPUS;
import static io.aliquot.scheduler.placement.Gpus.gpu;
import static io.aliquot.scheduler.placement.Gpus.request;
import static io.aliquot.scheduler.placement.Gpus.uuid;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.ledger.Commitment.Conflict;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeGpus;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.placement.PodScopes;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Quotas in the ledger: what a pod counts for, and when one is refused. Two nodes with two GPUs of 20,000 MiB. */
class QuotasTest {
    private final AtomicLong now = new AtomicLong();
    private final Ledger ledger = new Ledger(now::get, new LedgerEvents());

    @BeforeEach
    void nodes() {
        ledger.putNode("n1", LedgerTest.sharing(10, gpu(1, 0, 20_000), gpu(1, 1, 20_000)));
        ledger.putNode("n2", LedgerTest.sharing(10, gpu(2, 0, 20_000), gpu(2, 1, 20_000)));
    }

    @AfterEach
    void theSumsAreThoseOfTheClaims() {
        LedgerInvariants.recount(ledger);
    }

    @Test
    void aPodBeyondTheQuotaIsRefusedWithWhatIsLeftAndWhatItNeeds() {
        quota(MEMORY, 20_000);
        commit("a", "APP:main: gpumem=17000");
        assertThat(commit("b", "APP:main: gpumem=6000"))
                .isEqualTo(new Conflict(
                        "namespace team-a has 3000 of 20000 MiB left, the pod needs 6000 (ResourceQuota gpus)"));
        assertThat(commit("c", "APP:main: gpumem=3000")).isInstanceOf(Granted.class);
        assertThat(used()).isEqualTo(new QuotaAmount(20_000, 200, 2));
    }

    @Test
    void otherNamespacesAndPodsWithoutGpusDoNotCount() {
        quota(MEMORY, 1000);
        ledger.observeBound(BoundPods.of(new PodId("team-b", "x", "x"), "n1", 1, share(1, 0, 5000)));
        ledger.observeBound(BoundPods.of(pod("web"), "n1", 1));
        assertThat(commit("a", "APP:main: gpumem=1000")).isInstanceOf(Granted.class);
        assertThat(used()).isEqualTo(new QuotaAmount(1000, 100, 1));
    }

    @Test
    void eachVgpuCountsAndPercentagesAndWholeCardsCountAsOnTheirGpu() {
        quota(MEMORY, 100_000);
        commit("two", "APP:main: gpu=2 gpumem=3000 gpucores=10");
        assertThat(used()).isEqualTo(new QuotaAmount(6000, 20, 2));
        commit("percent", "APP:main: gpumem-percentage=10");
        assertThat(used()).isEqualTo(new QuotaAmount(8000, 120, 3));
        assertThat(ledger.commit(pod("card"), "n2", request("APP:main: gpu=1"), 1))
                .isInstanceOf(Granted.class);
        assertThat(used()).isEqualTo(new QuotaAmount(28_000, 220, 4));
    }

    @Test
    void initContainersCountByTheRuleOfKubernetes() {
        quota(MEMORY, 1_000_000);
        commit(
                "a",
                "INIT:warm: gpumem=6000",
                "SIDECAR:side: gpumem=1000",
                "INIT:load: gpumem=2000",
                "APP:main: gpumem=4000");
        assertThat(used()).isEqualTo(new QuotaAmount(6000, 200, 2));
        commit("b", "SIDECAR:side: gpumem=1000", "INIT:load: gpumem=2000", "APP:main: gpumem=4000");
        assertThat(used()).isEqualTo(new QuotaAmount(11_000, 400, 4));
    }

    @Test
    void coresAndVgpusAreLimitedToo() {
        quota(Map.of(CORES, 100L, VGPUS, 3L));
        commit("a", "APP:main: gpumem=100 gpucores=60");
        assertThat(commit("b", "APP:main: gpumem=100 gpucores=60"))
                .isEqualTo(new Conflict(
                        "namespace team-a has 40 of 100 % of cores left, the pod needs 60 (ResourceQuota gpus)"));
        assertThat(commit("unlimited", "APP:main: gpumem=100"))
                .isEqualTo(new Conflict(
                        "namespace team-a has 40 of 100 % of cores left, the pod needs 100 (ResourceQuota gpus)"));
        assertThat(commit("c", "APP:main: gpu=2 gpumem=100 gpucores=10")).isInstanceOf(Granted.class);
        assertThat(commit("d", "APP:main: gpumem=100 gpucores=10"))
                .isEqualTo(
                        new Conflict("namespace team-a has 0 of 3 vGPUs left, the pod needs 1 (ResourceQuota gpus)"));
        ledger.observeEnded("c");
        assertThat(commit("d", "APP:main: gpumem=100 gpucores=40"))
                .as("cores and vGPUs of a pod that has ended")
                .isInstanceOf(Granted.class);
    }

    /** It has only what others leave. */
    @Test
    void anElasticShareWithoutCoresCountsNone() {
        quota(Map.of(CORES, 10L));
        PodGpuRequest elastic = PodGpuRequest.of(
                request("APP:main: gpumem=100").containers(), Map.of("aliquot.io/core-policy", "elastic"), false);
        assertThat(ledger.commit(pod("a"), "n1", elastic, 1)).isInstanceOf(Granted.class);
        assertThat(used()).isEqualTo(new QuotaAmount(100, 0, 1));
    }

    @Test
    void ofSeveralQuotasEachHolds() {
        quota(MEMORY, 20_000);
        ledger.putQuota(new Quota("team-a", "small", "uid", Map.of(MEMORY, 5000L), List.of()));
        assertThat(commit("a", "APP:main: gpumem=6000"))
                .isEqualTo(new Conflict(
                        "namespace team-a has 5000 of 5000 MiB left, the pod needs 6000 (ResourceQuota small)"));
        ledger.removeQuota("team-a", "small");
        assertThat(commit("a", "APP:main: gpumem=6000")).isInstanceOf(Granted.class);
        assertThat(ledger.overQuota(pod("b"), request("APP:main: gpumem=15000")))
                .contains("namespace team-a has 14000 of 20000 MiB left, the pod needs 15000 (ResourceQuota gpus)");
    }

    @Test
    void podsThatHaveEndedOrWereDeletedByForceDoNotCount() {
        quota(MEMORY, 10_000);
        bound("a", 1, 1, 4000);
        bound("b", 1, 1, 4000);
        ledger.observeEnded("a");
        assertThat(used().memoryMiB()).isEqualTo(4000);
        assertThat(ledger.deletedBeforeEnd("b")).isTrue();
        assertThat(used()).isEqualTo(QuotaAmount.NONE);
        assertThat(ledger.takeNamespacesWithRoom()).containsExactly("team-a");
    }

    @Test
    void aQuotaBelowWhatIsHeldLeavesPodsAloneAndAdmitsNone() {
        bound("a", 1, 1, 9000);
        quota(MEMORY, 5000);
        assertThat(used().memoryMiB()).isEqualTo(9000);
        assertThat(commit("b", "APP:main: gpumem=1"))
                .isEqualTo(
                        new Conflict("namespace team-a has 0 of 5000 MiB left, the pod needs 1 (ResourceQuota gpus)"));
        assertThat(resize("a", 9001))
                .isEqualTo(new Resizing.Refused(
                        "namespace team-a has 0 of 5000 MiB left, the pod needs 1 (ResourceQuota gpus)"));
        assertThat(resize("a", 8000)).as("to shrink is allowed").isInstanceOf(Resizing.Prepared.class);
    }

    @Test
    void aResizeIsRefusedWithTheSentenceAndCountsTheLargerAmountUntilItsOutcomeIsKnown() {
        quota(MEMORY, 20_000);
        bound("a", 1, 1, 4000);
        bound("b", 2, 1, 13_000);
        assertThat(resize("a", 10_000))
                .isEqualTo(new Resizing.Refused(
                        "namespace team-a has 3000 of 20000 MiB left, the pod needs 6000 (ResourceQuota gpus)"));
        assertThat(ledger.checkResize("a", List.of(new ContainerShareChange("main", 10_000, null, null))))
                .isInstanceOf(Resizing.Refused.class);
        assertThat(used().memoryMiB()).isEqualTo(17_000);
        assertThat(resize("a", 7000)).isInstanceOf(Resizing.Prepared.class);
        assertThat(used().memoryMiB()).isEqualTo(20_000);
        ledger.rollbackResize("a", 1);
        assertThat(used().memoryMiB()).isEqualTo(17_000);
        assertThat(resize("a", 1000)).isInstanceOf(Resizing.Prepared.class);
        assertThat(used().memoryMiB()).isEqualTo(17_000);
        bound("a", 1, 2, 1000);
        assertThat(used().memoryMiB()).isEqualTo(14_000);
    }

    @Test
    void aReservationTakesRoomForOtherPodsOnlyAndIsNotShown() {
        quota(MEMORY, 10_000);
        ledger.reserve(pod("a"), "n1", request("APP:main: gpumem=6000"));
        assertThat(used()).isEqualTo(QuotaAmount.NONE);
        assertThat(ledger.overQuota(pod("b"), request("APP:main: gpumem=6000")))
                .contains("namespace team-a has 4000 of 10000 MiB left, the pod needs 6000 (ResourceQuota gpus)");
        assertThat(ledger.overQuota(pod("a"), request("APP:main: gpumem=6000"))).isEmpty();
        assertThat(ledger.commit(pod("a"), "n2", request("APP:main: gpumem=6000"), 1))
                .as("on another node")
                .isInstanceOf(Granted.class);
        assertThat(used().memoryMiB()).isEqualTo(6000);
        now.addAndGet(2 * Ledger.RESERVATION_TIME.toNanos());
        ledger.expire();
        assertThat(used().memoryMiB()).isEqualTo(6000);
    }

    @Test
    void noCapacityIsReservedBeyondTheQuota() {
        quota(MEMORY, 5000);
        PodGpuRequest request = request("APP:main: gpumem=6000");
        ledger.reserve(pod("a"), "n1", request);
        assertThat(ledger.reserveFor(pod("b"), "n1", request, Set.of())).isFalse();
        assertThat(ledger.nodeOf("a")).isEmpty();
        assertThat(ledger.nodeOf("b")).isEmpty();
    }

    @Test
    void aQuotaThatIsLoweredBetweenFilterAndBindHolds() {
        quota(MEMORY, 10_000);
        ledger.reserve(pod("a"), "n1", request("APP:main: gpumem=6000"));
        quota(MEMORY, 5000);
        assertThat(commit("a", "APP:main: gpumem=6000")).isInstanceOf(Conflict.class);
    }

    /** The random histories of FaultModelTest found it. */
    @Test
    void aQuotaThatIsLoweredHoldsForANewBindingAfterOneThatCanNoLongerTakeEffect() {
        quota(MEMORY, 10_000);
        PodGpuRequest request = request("APP:main: gpumem=6000");
        assertThat(ledger.commit(pod("a"), "n1", request, 1)).isInstanceOf(Granted.class);
        quota(MEMORY, 5000);
        assertThat(ledger.commit(pod("a"), "n1", request, 2)).isInstanceOf(Conflict.class);
    }

    @Test
    void anEndedReservationAndALargerQuotaAreRoom() {
        quota(MEMORY, 10_000);
        ledger.takeNamespacesWithRoom();
        ledger.reserve(pod("a"), "n1", request("APP:main: gpumem=6000"));
        assertThat(ledger.takeNamespacesWithRoom()).isEmpty();
        now.addAndGet(2 * Ledger.RESERVATION_TIME.toNanos());
        ledger.expire();
        assertThat(ledger.takeNamespacesWithRoom()).containsExactly("team-a");
        quota(MEMORY, 10_000);
        assertThat(ledger.takeNamespacesWithRoom()).as("the same quota").isEmpty();
        quota(MEMORY, 11_000);
        assertThat(ledger.takeNamespacesWithRoom()).containsExactly("team-a");
        ledger.removeQuota("team-a", "gpus");
        assertThat(ledger.takeNamespacesWithRoom()).containsExactly("team-a");
    }

    @ParameterizedTest
    @CsvSource({
        "APP:main: gpu=2 gpumem=100 gpucores=30, fixed, 60",
        "APP:main: gpu=2 gpumem=100, fixed, 200",
        "APP:main: gpu=2, elastic, 200",
        "APP:main: gpumem=100 gpucores=30, elastic, 30",
    })
    void beforeAPodHasGpusItCountsForTheCoresThatItMayGet(String containers, String policy, long cores) {
        PodGpuRequest pod =
                PodGpuRequest.of(request(containers).containers(), Map.of("aliquot.io/core-policy", policy), false);
        quota(CORES, cores);
        assertThat(ledger.overQuota(pod("a"), pod)).isEmpty();
        quota(CORES, cores - 1);
        assertThat(ledger.overQuota(pod("a"), pod)).isPresent();
    }

    @Test
    void whereCoresAreNotSharedAnElasticPodCountsForNone() {
        quota(CORES, 0);
        PodGpuRequest pod = PodGpuRequest.of(
                request("APP:main: gpumem=100 gpucores=30").containers(),
                Map.of("aliquot.io/core-policy", "elastic"),
                false);
        assertThat(ledger.overQuota(pod("a"), pod)).isPresent();
        var inventory = Gpus.inventory(10, gpu(3, 0, 20_000));
        ledger.putNode(
                "n3",
                new NodeFacts.Sharing(
                        new NodeGpus(inventory, SharingMode.MEMORY, Set.of()), Placement.BINPACK, HostResources.NONE));
        assertThat(ledger.overQuota(pod("a"), pod)).as("on the node n3").isEmpty();
    }

    @Test
    void aQuotaHasRoomAgainWhenLessCountsInItAndNotOtherwise() {
        quota(MEMORY, 10_000);
        ledger.takeNamespacesWithRoom();
        bound("a", 1, 1, 4000);
        bound("a", 1, 2, 5000);
        assertThat(ledger.takeNamespacesWithRoom()).isEmpty();
        bound("a", 1, 3, 4000);
        assertThat(ledger.takeNamespacesWithRoom()).containsExactly("team-a");
        ledger.putQuota(new Quota("team-a", "gpus", "uid", Map.of(MEMORY, 1L), List.of(new QuotaScope.Deadline(true))));
        ledger.takeNamespacesWithRoom();
        ledger.observeEnded("a");
        assertThat(ledger.takeNamespacesWithRoom())
                .as("the quota did not count it")
                .isEmpty();
        ledger.hasRoom("team-b");
        assertThat(ledger.takeNamespacesWithRoom()).containsExactly("team-b");
    }

    @Test
    void aNamespaceWithoutQuotasLimitsNoPod() {
        quota(MEMORY, 10);
        PodGpuRequest pod = request("APP:main: gpumem=11");
        assertThat(ledger.overQuotaOn("n1", pod("a"), pod, Set.of())).isPresent();
        ledger.removeQuota("team-a", "gpus");
        assertThat(ledger.overQuota(pod("a"), pod)).isEmpty();
        assertThat(ledger.overQuotaOn("n1", pod("a"), pod, Set.of())).isEmpty();
        assertThat(ledger.quotaDependsOnNode(pod("a"), pod)).isFalse();
    }

    @Test
    void percentagesMayFitOnSmallerGpusOnly() {
        ledger.putNode("n3", LedgerTest.sharing(10, gpu(3, 0, 8000)));
        quota(MEMORY, 9000);
        PodGpuRequest card = request("APP:main: gpu=1");
        assertThat(ledger.overQuota(pod("a"), card)).isEmpty();
        assertThat(ledger.quotaDependsOnNode(pod("a"), card)).isTrue();
        assertThat(ledger.overQuotaOn("n1", pod("a"), card, Set.of()))
                .contains("namespace team-a has 9000 of 9000 MiB left, the pod needs 20000 (ResourceQuota gpus)");
        assertThat(ledger.overQuotaOn("n3", pod("a"), card, Set.of())).isEmpty();
        assertThat(ledger.quotaDependsOnNode(pod("a"), request("APP:main: gpumem=5000")))
                .isFalse();
        assertThat(ledger.commit(pod("a"), "n1", card, 1)).isInstanceOf(Conflict.class);
        assertThat(ledger.commit(pod("a"), "n3", card, 1)).isInstanceOf(Granted.class);
        assertThat(ledger.overQuota(pod("b"), card))
                .contains("namespace team-a has 1000 of 9000 MiB left, the pod needs 8000 (ResourceQuota gpus)");
    }

    @Test
    void aQuotaWithScopesCountsThePodsInAllOfThem() {
        ledger.putQuota(new Quota(
                "team-a",
                "gpus",
                "uid",
                Map.of(MEMORY, 1000L),
                List.of(new QuotaScope.PriorityClassIn(Set.of("low"), true), new QuotaScope.Deadline(false))));
        PodGpuRequest large = request("APP:main: gpumem=2000");
        assertThat(ledger.overQuota(pod("a"), large)).isEmpty();
        assertThat(ledger.overQuota(pod("a"), large.withScopes(new PodScopes("low", true))))
                .isEmpty();
        assertThat(ledger.overQuota(pod("a"), large.withScopes(new PodScopes("low", false))))
                .isPresent();
        assertThat(new QuotaScope.PriorityClassIn(Set.of("low"), false).contains(PodScopes.NONE))
                .isTrue();
        assertThat(new QuotaScope.HasPriorityClass(true).contains(PodScopes.NONE))
                .isFalse();
        assertThat(new QuotaScope.HasPriorityClass(false).contains(PodScopes.NONE))
                .isTrue();
    }

    @Test
    void aDeadlineThatIsAddedToARunningPodMovesItOutOfTheScope() {
        ledger.putQuota(
                new Quota("team-a", "gpus", "uid", Map.of(MEMORY, 5000L), List.of(new QuotaScope.Deadline(false))));
        bound("a", 1, 1, 4000);
        assertThat(used().memoryMiB()).isEqualTo(4000);
        ledger.takeNamespacesWithRoom();
        BoundPod a = ledger.bound("a").orElseThrow();
        ledger.observeBound(new BoundPod(
                a.id(),
                a.node(),
                2,
                a.shares(),
                a.hostRequests(),
                new PodScopes("", true),
                0,
                a.created(),
                a.bound(),
                a.grace(),
                a.leavesBy()));
        assertThat(used()).isEqualTo(QuotaAmount.NONE);
        assertThat(ledger.takeNamespacesWithRoom()).containsExactly("team-a");
        assertThat(commit("b", "APP:main: gpumem=5000")).isInstanceOf(Granted.class);
    }

    private void quota(QuotaResource what, long hard) {
        quota(Map.of(what, hard));
    }

    private void quota(Map<QuotaResource, Long> hard) {
        ledger.putQuota(new Quota("team-a", "gpus", "uid", hard, List.of()));
    }

    private QuotaAmount used() {
        return ledger.quotas().get(0).used();
    }

    private Commitment commit(String name, String... containers) {
        return ledger.commit(pod(name), "n1", request(containers), 1);
    }

    private void bound(String name, int node, long version, int memoryMiB) {
        ledger.observeBound(BoundPods.of(pod(name), "n" + node, version, share(node, 0, memoryMiB)));
    }

    private Resizing resize(String name, int memoryMiB) {
        return ledger.resize(name, List.of(new ContainerShareChange("main", memoryMiB, null, null)));
    }

    private static ContainerShare share(int node, int gpu, int memoryMiB) {
        return BoundPods.main(uuid(node, gpu), new GpuAmount(memoryMiB, 0, 1, false));
    }

    private static PodId pod(String name) {
        return new PodId("team-a", name, name);
    }
}
