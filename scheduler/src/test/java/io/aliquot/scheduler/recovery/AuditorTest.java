package io.aliquot.scheduler.recovery;

import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.apiserver.Cluster.EvictOutcome;
import io.aliquot.scheduler.apiserver.Cluster.PodState;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.placement.Gpus;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.time.Instant;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

class AuditorTest {
    private final ExtenderFixture fixture = new ExtenderFixture();
    private final SimpleMeterRegistry metrics = new SimpleMeterRegistry();
    private final Auditor auditor = new Auditor(fixture.ledger, fixture.events, fixture.cluster, metrics);

    @Test
    void ifTwoLeadersAllocatedTheSameCapacityTheYoungerPodIsEvictedWithAnEvent() {
        present("young", 9, "old/1");
        present("old", 5, "new/2");
        auditor.audit();
        auditor.audit();
        assertThat(fixture.cluster.evicted).containsExactly("young");
        assertThat(fixture.cluster.warnings)
                .containsExactly("young GpuOverallocated: two leaders of the scheduler allocated the same part of "
                        + Gpus.uuid(1, 0) + " of node n1; this pod, the younger, is evicted, and the older ones stay");
        assertThat(metrics.counter("aliquot.ledger.overallocated").count()).isEqualTo(1);
    }

    @Test
    void noMorePodsAreEvictedThanNecessary() {
        present("a", 1, "new/2");
        present("b", 2, "old/1");
        present("c", 3, "new/2");
        auditor.audit();
        assertThat(fixture.cluster.evicted).containsExactly("c", "b");
    }

    @Test
    void noPodOfOneLeaderIsEvictedWhenTheCapacityShrinks() {
        present("a", 1, "one/1");
        present("b", 2, "one/1");
        auditor.audit();
        auditor.audit();
        assertThat(fixture.cluster.evicted).isEmpty();
        assertThat(fixture.cluster.warnings)
                .containsExactly("b GpuOverallocated: pods hold more of " + Gpus.uuid(1, 0)
                        + " of node n1 than its capacity is now; delete this pod, or another one there");
    }

    @Test
    void noPodOfSuccessiveLeadersIsEvictedWhenTheCapacityShrinks() {
        present("a", 1, "one/1");
        present("b", 2, "one/1");
        present("c", 4, "other/2");
        auditor.audit();
        assertThat(fixture.cluster.evicted).isEmpty();
        assertThat(fixture.cluster.warnings)
                .hasSize(1)
                .first()
                .asString()
                .startsWith("c GpuOverallocated: pods hold more");
    }

    /** The leaseTransitions of a recreated Lease start at 0. */
    @Test
    void noPodIsEvictedForARecreatedLeaseWhenTheCapacityShrinks() {
        present("a", 1, "one/7");
        present("b", 4, "other/0");
        auditor.audit();
        assertThat(fixture.cluster.evicted).isEmpty();
        assertThat(fixture.cluster.warnings)
                .hasSize(1)
                .first()
                .asString()
                .startsWith("b GpuOverallocated: pods hold more");
    }

    @Test
    void aStandbyDiscardsEventsOfUnknownNodes() {
        fixture.cluster.stopLeading();
        fixture.events.capacityFreed("gone");
        fixture.events.overallocated("gone", "GPU-1");
        fixture.events.capacityFreed("n1");
        auditor.audit();
        assertThat(fixture.events.takeFreed()).containsExactly("n1");
        assertThat(fixture.events.takeOverallocated()).isEmpty();
    }

    @Test
    void bindsOfTwoLeadersInOneSecondCountAsConcurrent() {
        present("a", 1, "old/1");
        present("b", 1, "new/2");
        auditor.audit();
        assertThat(fixture.cluster.evicted).hasSize(1);
    }

    @Test
    void aTerminatingPodFreesEnoughCapacity() {
        present("a", 1, "new/2");
        BoundPod b = present("b", 2, "old/1");
        fixture.cluster.states.put("b", new PodState.Bound(BoundPods.leaving(b, Instant.EPOCH)));
        auditor.audit();
        assertThat(fixture.cluster.evicted).isEmpty();
        assertThat(fixture.cluster.warnings).isEmpty();
    }

    @Test
    void anOverAllocationFromStaleEventsEvictsNoPod() {
        present("a", 1, "new/2");
        present("b", 2, "old/1");
        fixture.cluster.states.put("a", new PodState.Gone());
        auditor.audit();
        assertThat(fixture.cluster.evicted).isEmpty();
        assertThat(fixture.cluster.warnings).isEmpty();
    }

    @Test
    void aFailedReadOrEvictionIsRetriedAtTheNextAudit() {
        present("a", 1, "new/2");
        BoundPod b = present("b", 2, "old/1");
        fixture.cluster.states.put("b", new PodState.Unreadable("down"));
        auditor.audit();
        assertThat(fixture.cluster.evicted).isEmpty();
        fixture.cluster.states.put("b", new PodState.Bound(b));
        fixture.cluster.evictions.put("b", new EvictOutcome.Protected("a budget"));
        auditor.audit();
        fixture.cluster.evictions.clear();
        auditor.audit();
        auditor.audit();
        assertThat(fixture.cluster.evicted).containsExactly("b", "b");
    }

    /** Regression: every audit incremented the counter and logged an ERROR line. */
    @Test
    void aGpuIsCountedAndLoggedOnceWhileABudgetBlocksTheEviction() {
        var log = (Logger) LoggerFactory.getLogger(Auditor.class);
        var lines = new ListAppender<ILoggingEvent>();
        lines.start();
        log.addAppender(lines);
        present("a", 1, "new/2");
        present("b", 2, "old/1");
        fixture.cluster.evictions.put("b", new EvictOutcome.Protected("a budget"));
        try {
            auditor.audit();
            int once = lines.list.size();
            for (int i = 0; i < 10; i++) {
                auditor.audit();
            }
            assertThat(lines.list).hasSize(once);
        } finally {
            log.detachAppender(lines);
        }
        assertThat(metrics.counter("aliquot.ledger.overallocated").count()).isEqualTo(1);
        assertThat(fixture.cluster.evicted).hasSize(11);
        present("c", 3, "old/1");
        auditor.audit();
        assertThat(metrics.counter("aliquot.ledger.overallocated").count())
                .as("a further pod is a separate finding")
                .isEqualTo(2);
    }

    @Test
    void aStandbyEvictsNoPodUntilItLeads() {
        Cluster.LeaderStatus leads = fixture.cluster.leaderStatus;
        fixture.cluster.stopLeading();
        present("a", 1, "new/2");
        present("b", 2, "old/1");
        auditor.audit();
        assertThat(fixture.cluster.evicted).isEmpty();
        fixture.cluster.leaderStatus = leads;
        auditor.audit();
        assertThat(fixture.cluster.evicted).containsExactly("b");
    }

    /** A standby releases capacity late, so the next allocation of the leader looks like an over-allocation. */
    @Test
    void manyWrongReportsOnAStandbyDoNotHideAnOverAllocationWhenItLeads() {
        Cluster.LeaderStatus leads = fixture.cluster.leaderStatus;
        fixture.cluster.stopLeading();
        for (int i = 0; i < 1000; i++) {
            fixture.events.overallocated("n2", "GPU-" + i);
        }
        present("a", 1, "new/2");
        present("b", 2, "old/1");
        auditor.audit();
        fixture.cluster.leaderStatus = leads;
        auditor.audit();
        assertThat(fixture.cluster.evicted).containsExactly("b");
    }

    /** Adds a pod that holds most of the GPU, both in the ledger and on the API server. */
    private BoundPod present(String name, int second, String fence) {
        BoundPod pod = BoundPods.under(ExtenderFixture.bound(name, 1, 1, 50_000), second, fence);
        fixture.ledger.observeBound(pod);
        fixture.cluster.states.put(name, new PodState.Bound(pod));
        return pod;
    }
}
