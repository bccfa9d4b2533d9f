package io.aliquot.scheduler.extender;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.cluster.Cluster.WriteOutcome;
import io.aliquot.scheduler.ledger.Quota;
import io.aliquot.scheduler.ledger.QuotaResource;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class ShortPodsTest {
    private static final int PODS = 20_000;

    private final ExtenderFixture fixture = new ExtenderFixture();

    /** Each pod is filtered; some never get a node, and of some the Binding's answer is lost. */
    @Test
    void nothingIsLeftOfTwentyThousandPodsThatCameAndWent() {
        fixture.ledger.putQuota(quota());
        FilterAndPrioritize verbs = fixture.filterAndPrioritize(Placement.BINPACK, 100);
        for (int i = 0; i < PODS; i++) {
            String name = "short-" + i;
            int memory = i % 10 == 0 ? 10 * ExtenderFixture.MEMORY : 1000 + i % 7;
            Wire.Pod pod = ExtenderFixture.pod(name, ExtenderFixture.mebibytes(memory));
            List<String> nodes = verbs.filter(pod, List.of("n1", "n2")).nodeNames();
            if (i % 3 == 0) {
                fixture.cluster.outcomes.add(new WriteOutcome.Unknown("no answer"));
            }
            if (!nodes.isEmpty()) {
                fixture.bind(name, nodes.getFirst());
            }
            fixture.cluster.outcomes.clear();
            fixture.ledger.observeEnded("uid-" + name);
            fixture.pending.forget("uid-" + name);
            fixture.pass(Duration.ofMillis(100));
            fixture.ledger.expire();
        }
        fixture.pass(Duration.ofMinutes(1));
        fixture.ledger.expire();

        assertThat(fixture.cluster.sent).as("Bindings").hasSize(PODS * 9 / 10);
        assertThat(fixture.pending.allPending()).isEmpty();
        assertThat(fixture.pending.kinds()).isEmpty();
        assertThat(fixture.ledger.nodeNames()).containsExactlyInAnyOrder("n1", "n2");
        for (String node : fixture.ledger.nodeNames()) {
            assertThat(fixture.ledger.view(node).orElseThrow().holdings()).isEmpty();
        }
        assertThat(fixture.ledger.quotas())
                .singleElement()
                .satisfies(usage ->
                        assertThat(QuotaResource.MEMORY.of(usage.used())).isZero());
        assertThat(fixture.events.takeFreed()).hasSizeLessThanOrEqualTo(2);
        assertThat(fixture.ledger.takeNamespacesWithRoom()).hasSizeLessThanOrEqualTo(1);
    }

    private static Quota quota() {
        return new Quota("default", "gpus", "uid", Map.of(QuotaResource.MEMORY, 1_000_000L), List.of());
    }
}
