package io.aliquot.scheduler.ledger;

import static io.aliquot.scheduler.placement.Gpus.ask;
import static io.aliquot.scheduler.placement.Gpus.gpu;
import static io.aliquot.scheduler.placement.Gpus.uuid;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Gpu;
import io.aliquot.api.Placement;
import io.aliquot.api.VisibleDevices;
import io.aliquot.scheduler.ledger.Commitment.AlreadyBound;
import io.aliquot.scheduler.ledger.Commitment.Conflict;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.placement.Amount;
import io.aliquot.scheduler.placement.GpuRoom;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.PodAsk;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class LedgerTest {
    private static final PodAsk HALF = ask("APP:main: gpumem=500");
    private static final PodAsk WHOLE = ask("APP:main: gpu=1");

    private final AtomicLong now = new AtomicLong();
    private final List<String> told = new ArrayList<>();
    private final Ledger ledger = new Ledger(now::get, new LedgerListener() {
        @Override
        public void roomFreed(String node) {
            told.add("freed " + node);
        }

        @Override
        public void oversold(String node, String gpu, PodId latest, Set<PodId> holders) {
            told.add("oversold " + node + " by " + latest.name() + " of " + holders.size());
        }
    });

    @BeforeEach
    void twoNodesWithAGpuEach() {
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000)));
        ledger.putNode("n2", sharing(10, gpu(2, 0, 1000)));
        told.clear();
    }

    @Test
    void aGpuIsGrantedUntilItIsFullAndNoFurther() {
        assertThat(ledger.commit(pod("a"), "n1", HALF)).isInstanceOf(Granted.class);
        assertThat(ledger.commit(pod("b"), "n1", HALF)).isInstanceOf(Granted.class);
        assertThat(ledger.commit(pod("c"), "n1", HALF)).isEqualTo(new Conflict("no GPU with 500 MiB free"));
    }

    @Test
    void aNodeWhoseAgentDoesNotAnswerTakesNoPodAndKeepsThoseItHas() {
        ledger.commit(pod("a"), "n1", HALF);
        ledger.setServed("n1", false);
        assertThat(ledger.ask("n1", "b", HALF))
                .isEqualTo(new Offer.Refuses("the node's device plugin is not ready", true));
        assertThat(ledger.commit(pod("b"), "n1", HALF))
                .isEqualTo(new Conflict("the node's device plugin is not ready"));
        assertThat(ledger.place(pod("a").uid())).contains("n1");

        ledger.setServed("n1", true);
        assertThat(told).containsExactly("freed n1");
        assertThat(ledger.ask("n1", "b", HALF)).isInstanceOf(Offer.Fits.class);
        assertThat(ledger.ask("n1", "b", WHOLE)).isInstanceOf(Offer.Refuses.class);
    }

    @Test
    void anExpectedPodKeepsItsPlaceAgainstOthersButNotAgainstItself() {
        ledger.expect(pod("a"), "n1", WHOLE);
        assertThat(ledger.ask("n1", "b", HALF)).isEqualTo(new Offer.Refuses("no GPU with 500 MiB free", false));
        assertThat(ledger.ask("n1", "a", WHOLE)).isInstanceOf(Offer.Fits.class);
        assertThat(ledger.commit(pod("a"), "n1", WHOLE)).isInstanceOf(Granted.class);
    }

    @Test
    void anExpectationEndsByItselfAndTellsOfTheRoom() {
        ledger.expect(pod("a"), "n1", WHOLE);
        now.addAndGet(Ledger.EXPECTED_FOR.toNanos() + 1);
        ledger.expire();
        assertThat(ledger.ask("n1", "b", WHOLE)).isInstanceOf(Offer.Fits.class);
        assertThat(told).containsExactly("freed n1");
        assertThat(ledger.reservations()).isZero();
    }

    @Test
    void aPodBoundElsewhereThanExpectedGivesTheExpectedPlaceBack() {
        ledger.expect(pod("a"), "n1", WHOLE);
        assertThat(ledger.commit(pod("a"), "n2", WHOLE)).isInstanceOf(Granted.class);
        assertThat(ledger.ask("n1", "b", WHOLE)).isInstanceOf(Offer.Fits.class);
        assertThat(told).containsExactly("freed n1");
    }

    @Test
    void whileABindsOutcomeIsUnknownTheSameIsGrantedAgainAndNothingElsewhere() {
        Commitment first = ledger.commit(pod("a"), "n1", HALF);
        assertThat(ledger.unsettled("a")).contains("n1");
        assertThat(ledger.commit(pod("a"), "n1", HALF)).isEqualTo(first);
        assertThat(ledger.commit(pod("a"), "n2", HALF))
                .isEqualTo(new Conflict("a bind to node n1 was sent and its outcome is not known yet"));
        ledger.expect(pod("a"), "n2", HALF);
        assertThat(ledger.unsettled("a")).contains("n1");
    }

    @Test
    void whatTheClusterToldIsNotReleasedByALateAnswer() {
        ledger.commit(pod("a"), "n1", WHOLE);
        ledger.hold(bound("a", "n1", uuid(1, 0), new Amount(1000, 0, 1, true)));
        ledger.release("a");
        assertThat(ledger.commit(pod("a"), "n1", WHOLE)).isEqualTo(new AlreadyBound("n1"));
        assertThat(ledger.ask("n1", "b", HALF)).isInstanceOf(Offer.Refuses.class);
    }

    @Test
    void aReleasedOrForgottenPodTellsOfTheRoomOnce() {
        ledger.commit(pod("a"), "n1", HALF);
        ledger.release("a");
        ledger.release("a");
        ledger.hold(bound("b", "n1", uuid(1, 0), new Amount(500, 0, 1, false)));
        ledger.forget("b");
        ledger.forget("b");
        assertThat(told).containsExactly("freed n1", "freed n1");
    }

    @Test
    void pendingOutcomesAreListedOnceTheyAreOld() {
        ledger.commit(pod("a"), "n1", HALF);
        assertThat(ledger.unsettledSince(Duration.ofSeconds(1))).isEmpty();
        now.addAndGet(Duration.ofSeconds(1).toNanos());
        assertThat(ledger.unsettledSince(Duration.ofSeconds(1))).containsExactly(pod("a"));
        ledger.commit(pod("a"), "n1", HALF);
        ledger.giveUp("a", Duration.ofSeconds(1));
        assertThat(ledger.unsettled("a")).as("sent again in the meantime").contains("n1");
        now.addAndGet(Duration.ofSeconds(1).toNanos());
        ledger.giveUp("a", Duration.ofSeconds(1));
        assertThat(ledger.unsettled("a")).isEmpty();
    }

    @Test
    void aGpuThatComesBackIsNoEmptier() {
        ledger.hold(bound("a", "n1", uuid(1, 0), new Amount(800, 0, 1, false)));
        ledger.putNode("n1", sharing(10));
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000)));
        assertThat(ledger.ask("n1", "b", HALF)).isInstanceOf(Offer.Refuses.class);
        ledger.removeNode("n1");
        assertThat(ledger.ask("n1", "b", HALF))
                .isEqualTo(new Offer.Refuses("the Aliquot scheduler does not know the node yet", true));
        ledger.putNode("n1", sharing(10, gpu(1, 0, 1000)));
        assertThat(ledger.ask("n1", "b", HALF)).isInstanceOf(Offer.Refuses.class);
    }

    @Test
    void aPodMayBeKnownBeforeItsNode() {
        ledger.hold(bound("a", "n3", uuid(3, 0), new Amount(800, 0, 1, false)));
        ledger.putNode("n3", sharing(10, gpu(3, 0, 1000)));
        assertThat(ledger.ask("n3", "b", HALF)).isInstanceOf(Offer.Refuses.class);
    }

    @Test
    void aNodeLeftOutRefusesWithItsReasonAndKeepsItsPods() {
        ledger.hold(bound("a", "n1", uuid(1, 0), new Amount(800, 0, 1, false)));
        ledger.putNode("n1", new NodeFacts.LeftOut("the node is not labelled gpu=on"));
        assertThat(ledger.ask("n1", "b", HALF)).isEqualTo(new Offer.Refuses("the node is not labelled gpu=on", true));
        assertThat(ledger.commit(pod("b"), "n1", HALF)).isEqualTo(new Conflict("the node is not labelled gpu=on"));
    }

    @Test
    void aPodReadBesideTheWatchCountsUntilTheWatchOrAnotherReadingDecides() {
        ledger.suppose(bound("a", "n1", uuid(1, 0), new Amount(800, 0, 1, false)));
        assertThat(ledger.ask("n1", "b", HALF)).isInstanceOf(Offer.Refuses.class);
        assertThat(ledger.commit(pod("a"), "n1", HALF)).isEqualTo(new AlreadyBound("n1"));
        assertThat(ledger.unsettledSince(Duration.ZERO)).containsExactly(pod("a"));
        ledger.hold(bound("a", "n1", uuid(1, 0), new Amount(800, 0, 1, false)));
        assertThat(ledger.unsettledSince(Duration.ZERO)).isEmpty();
        ledger.forget("a");
        ledger.suppose(bound("a", "n1", uuid(1, 0), new Amount(800, 0, 1, false)));
        ledger.release("a");
        assertThat(ledger.ask("n1", "b", WHOLE)).isInstanceOf(Offer.Fits.class);
    }

    @Test
    void anOversoldGpuIsReported() {
        ledger.hold(bound("a", "n1", uuid(1, 0), new Amount(800, 0, 1, false)));
        ledger.hold(bound("b", "n1", uuid(1, 0), new Amount(800, 0, 1, false)));
        ledger.hold(bound("b", "n1", uuid(1, 0), new Amount(800, 0, 1, false)));
        assertThat(told).containsExactly("oversold n1 by b of 2");
    }

    @Test
    void aNodeIsSeenWithItsRoomsAndWhoHoldsWhat() {
        ledger.hold(bound("a", "n1", uuid(1, 0), new Amount(300, 10, 1, false)));
        ledger.commit(pod("b"), "n1", HALF);
        now.addAndGet(Duration.ofSeconds(2).toNanos());
        ledger.expect(pod("c"), "n1", ask("APP:main: gpumem=100"));
        NodeView view = ledger.view("n1").orElseThrow();
        assertThat(view.rooms()).extracting(GpuRoom::taken).containsExactly(new Amount(900, 10, 3, false));
        assertThat(view.holdings())
                .extracting(holding -> holding.pod().name() + " " + holding.state() + " "
                        + holding.age().toSeconds() + " " + holding.shares().size())
                .containsExactlyInAnyOrder("a HELD 2 1", "b ASSUMED 2 1", "c EXPECTED 0 0");
        assertThat(ledger.nodeNames()).containsExactlyInAnyOrder("n1", "n2");
        assertThat(ledger.view("n9")).isEmpty();
    }

    @Test
    void whatWouldFitWithoutOthersIsAskedWithoutChangingAnything() {
        ledger.hold(bound("a", "n1", uuid(1, 0), new Amount(800, 0, 1, false)));
        ledger.hold(bound("b", "n2", uuid(2, 0), new Amount(800, 0, 1, false)));
        assertThat(ledger.askWithout("n1", "c", HALF, Set.of("b"))).isInstanceOf(Offer.Refuses.class);
        assertThat(ledger.askWithout("n1", "c", WHOLE, Set.of("a", "b"))).isInstanceOf(Offer.Fits.class);
        assertThat(ledger.ask("n1", "c", HALF)).isInstanceOf(Offer.Refuses.class);
    }

    @Test
    void roomThatOthersMustLeaveIsKeptUntilItIsTaken() {
        ledger.hold(bound("victim", "n1", uuid(1, 0), new Amount(800, 0, 1, false)));
        assertThat(ledger.keepFor(pod("c"), "n1", HALF, Set.of())).isFalse();
        assertThat(ledger.keepFor(pod("c"), "n1", HALF, Set.of("victim"))).isTrue();
        ledger.expect(pod("c"), "n1", HALF);
        assertThat(ledger.ask("n1", "c", HALF)).as("the victim is still there").isInstanceOf(Offer.Refuses.class);
        ledger.forget("victim");
        assertThat(ledger.ask("n1", "d", WHOLE)).isInstanceOf(Offer.Refuses.class);
        assertThat(ledger.ask("n1", "c", HALF)).isInstanceOf(Offer.Fits.class);
        assertThat(ledger.commit(pod("c"), "n1", HALF)).isInstanceOf(Granted.class);
        ledger.letGo("c");
        assertThat(ledger.unsettled("c")).contains("n1");
        assertThat(told).as("what is kept is not oversold").containsExactly("freed n1");
    }

    @Test
    void keptRoomIsFreeAgainOnceNobodyRenewsTheKeepingOrLetsGo() {
        assertThat(ledger.keepFor(pod("c"), "n1", WHOLE, Set.of())).isTrue();
        now.addAndGet(Ledger.KEPT_FOR.toNanos());
        assertThat(ledger.keepFor(pod("c"), "n1", WHOLE, Set.of())).isTrue();
        now.addAndGet(Ledger.KEPT_FOR.toNanos());
        ledger.expire();
        assertThat(ledger.ask("n1", "d", WHOLE)).isInstanceOf(Offer.Refuses.class);
        now.addAndGet(1);
        ledger.expire();
        assertThat(ledger.ask("n1", "d", WHOLE)).isInstanceOf(Offer.Fits.class);
        ledger.keepFor(pod("c"), "n1", WHOLE, Set.of());
        ledger.letGo("c");
        assertThat(ledger.ask("n1", "d", WHOLE)).isInstanceOf(Offer.Fits.class);
        assertThat(told).containsExactly("freed n1", "freed n1");
    }

    @Test
    void whoWasDeletedByForceHoldsItsShareForItsGracePeriod() {
        ledger.hold(bound("a", "n1", uuid(1, 0), new Amount(800, 0, 1, false)));
        ledger.vanish("a");
        now.addAndGet(BoundPods.GRACE.toNanos());
        ledger.vanish("a");
        ledger.expire();
        assertThat(ledger.ask("n1", "b", WHOLE)).isInstanceOf(Offer.Refuses.class);
        now.addAndGet(Ledger.LATE.toNanos() + 1);
        ledger.expire();
        assertThat(ledger.ask("n1", "b", WHOLE)).isInstanceOf(Offer.Fits.class);
        assertThat(told).containsExactly("freed n1");
        assertThat(ledger.place("a")).isEmpty();
    }

    @Test
    void whoVanishesWithoutAShareLeavesNothing() {
        ledger.hold(BoundPods.of(pod("a"), "n1", 1));
        ledger.expect(pod("b"), "n1", WHOLE);
        ledger.vanish("a");
        ledger.vanish("b");
        ledger.vanish("never heard of");
        assertThat(ledger.reservations()).isZero();
        assertThat(ledger.view("n1").orElseThrow().holdings()).isEmpty();
    }

    @Test
    void whatWasGrantedIsWrittenAsTheNodesRuntimeWantsIt() {
        var granted = (Granted) ledger.commit(pod("a"), "n1", HALF);
        assertThat(Gpus.of(granted.containers(), "main").print())
                .isEqualTo(uuid(1, 0) + " memory=500Mi cores=0 policy=fixed priority=0 context=0Mi\n");
        assertThat(granted.visibleDevices()).isEqualTo(new VisibleDevices("{uuid}"));
    }

    static NodeFacts sharing(int slots, Gpu... gpus) {
        return new NodeFacts.Sharing(Gpus.inventory(slots, gpus), Placement.BINPACK, new HostLoad(1000, 1000));
    }

    static PodId pod(String name) {
        return new PodId("default", name, name);
    }

    static BoundPod bound(String name, String node, String gpu, Amount amount) {
        return BoundPods.of(pod(name), node, 1, BoundPods.main(gpu, amount));
    }
}
