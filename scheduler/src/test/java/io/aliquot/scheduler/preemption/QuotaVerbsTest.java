package io.aliquot.scheduler.preemption;

import static io.aliquot.scheduler.extender.ExtenderFixture.id;
import static io.aliquot.scheduler.extender.ExtenderFixture.mebibytes;
import static io.aliquot.scheduler.extender.ExtenderFixture.unbound;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.explain.Explainer;
import io.aliquot.scheduler.explain.PendingCause;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.ledger.Quota;
import io.aliquot.scheduler.ledger.QuotaResource;
import io.aliquot.scheduler.pending.Waker;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** A quota through the verbs: Pending with a reason, retried when there is room, and never a reason for an eviction. */
class QuotaVerbsTest {
    private static final String SENTENCE =
            "namespace default has 3000 of 20000 MiB left, the pod needs 6000 (ResourceQuota gpus)";

    private final ExtenderFixture fixture = new ExtenderFixture();
    private final PreemptionFixture preemption = new PreemptionFixture(fixture);
    private final Explainer explainer = new Explainer(fixture.ledger, fixture.scoring, fixture.budgets);

    @Test
    void aPodOverQuotaIsPendingOnEveryNodeWithTheSentence() {
        quota(20_000);
        fixture.holds("a", 1, 0, 17_000, 1);
        assertThat(fixture.filterResult("b", mebibytes(6000), "n1", "n2"))
                .isEqualTo("unresolvable {n1=" + SENTENCE + ", n2=" + SENTENCE + "}");
        PodGpuRequest request = fixture.pending.request("uid-b").orElseThrow();
        assertThat(explainer.eventText(id("b"), request, List.of("n1", "n2"))).contains(SENTENCE);
        assertThat(explainer.cause(id("b"), request, List.of("n1", "n2"))).isEqualTo(PendingCause.QUOTA);
        assertThat(explainer.explain(id("b"), request, 10, true, List.of("n1")).summary())
                .startsWith(SENTENCE);
    }

    @Test
    void nodesWithGpusThatAreTooLargeForTheQuotaAreLeftOut() {
        ExtenderFixture.node(fixture.ledger, 2, Gpus.gpu(2, 0, 20_000));
        quota(20_000);
        String card = "\"aliquot.io/vgpu\": \"1\"";
        assertThat(fixture.filter("a", card, 0, "", "n1", "n2")).containsExactly("n2");
        assertThat(fixture.bind("a", "n2")).isEmpty();
        assertThat(fixture.filter("b", card, 10, "", "n1")).isEmpty();
    }

    @Test
    void theEndOfAPodOnAFullNodeWakesAPodThatFitsElsewhere() {
        quota(20_000);
        fixture.holds("a", 1, 0, 17_000, 1);
        fixture.filter("b", mebibytes(6000), 0, "", "n2");
        woken();
        fixture.ledger.observeEnded("uid-a");
        assertThat(woken()).containsExactly("n2");
    }

    @Test
    void aRaisedQuotaWakesAPodAndOneThatIsStillTooSmallDoesNot() {
        quota(2000);
        fixture.filter("b", mebibytes(6000), 0, "", "n1");
        woken();
        quota(3000);
        assertThat(woken()).isEmpty();
        quota(6000);
        assertThat(woken()).containsExactly("n1");
    }

    @Test
    void aQuotaThatIsRaisedWhileFilterEvaluatesAPodWakesIt() {
        quota(2000);
        fixture.pending.observe(unbound("b", mebibytes(6000), 0, ""));
        woken();
        quota(6000);
        assertThat(woken()).containsExactly("n1");
    }

    @Test
    void freedCapacityOfANodeDoesNotWakeAPodThatIsOverQuota() {
        quota(2000);
        fixture.filter("b", mebibytes(6000), 0, "", "n1");
        woken();
        fixture.events.capacityFreed("n1");
        assertThat(woken()).isEmpty();
    }

    @Test
    void noPodIsEvictedForAPodThatIsOverQuotaThoughTheVictimsAreOfItsNamespace() {
        quota(80_000);
        fixture.holds("a", 1, 0, 70_000, 1);
        fixture.holds("b", 1, 1, 5000, 1);
        fixture.filter("high", mebibytes(20_000), 10, "PreemptLowerPriority", "n1");
        assertThat(preemption.preemptor.preempt(
                        unbound("high", mebibytes(20_000), 10, "PreemptLowerPriority"),
                        Map.of("n1", new NodeVictims(List.of("uid-a"), 0))))
                .isEmpty();
        Evictor evictor = preemption.evictor();
        for (int second = 0; second < 5; second++) {
            fixture.pass(Duration.ofSeconds(1));
            evictor.evict();
        }
        assertThat(fixture.cluster.evicted).isEmpty();
        assertThat(fixture.cluster.rehearsed).isEmpty();
    }

    @Test
    void noPodIsEvictedForAWholeCardThatIsMoreThanTheQuotaAllows() {
        ExtenderFixture.node(fixture.ledger, 3, Gpus.gpu(3, 0, 1000));
        quota(79_999);
        fixture.holds("a", 1, 0, 100, 1);
        fixture.holds("b", 1, 1, 100, 1);
        String card = "\"aliquot.io/vgpu\": \"1\"";
        fixture.filter("high", card, 10, "PreemptLowerPriority", "n1");
        assertThat(preemption.preemptor.preempt(
                        unbound("high", card, 10, "PreemptLowerPriority"),
                        Map.of("n1", new NodeVictims(List.of("uid-a"), 0))))
                .isEmpty();
        fixture.pass(Duration.ofSeconds(1));
        preemption.evictor().evict();
        assertThat(fixture.cluster.evicted).isEmpty();
    }

    private void quota(long memoryMiB) {
        fixture.ledger.putQuota(
                new Quota("default", "gpus", "uid", Map.of(QuotaResource.MEMORY, memoryMiB), List.of()));
    }

    private List<String> woken() {
        fixture.pass(Waker.MIN_INTERVAL);
        preemption.waker.wake();
        return fixture.cluster.woken;
    }
}
