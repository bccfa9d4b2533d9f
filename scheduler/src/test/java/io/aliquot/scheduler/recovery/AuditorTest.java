package io.aliquot.scheduler.recovery;

import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.PodState;
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

    /** An administrator may have reduced the capacity; that two leaders allocated it twice takes a late API server. */
    @Test
    void podsThatHoldMoreThanTheGpuGetAnEventAndNoneIsEvicted() {
        present("young", 9);
        present("old", 5);
        auditor.audit();
        auditor.audit();
        assertThat(fixture.cluster.evicted).isEmpty();
        assertThat(fixture.cluster.warnings)
                .containsExactly("young GpuOverallocated: " + Gpus.uuid(1, 0)
                        + " of node n1 has less than its pods hold; the youngest are default/young and default/old. Its"
                        + " capacity was reduced, or two leaders of the scheduler allocated the same part. To end one:"
                        + " kubectl delete pod -n default young");
        assertThat(metrics.counter("aliquot.ledger.overallocated").count()).isEqualTo(1);
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
    void aTerminatingPodFreesEnoughCapacity() {
        present("a", 1);
        BoundPod b = present("b", 2);
        fixture.cluster.states.put("b", new PodState.Bound(BoundPods.leaving(b, Instant.EPOCH)));
        auditor.audit();
        assertThat(fixture.cluster.warnings).isEmpty();
    }

    @Test
    void anOverAllocationFromStaleEventsIsNone() {
        present("a", 1);
        present("b", 2);
        fixture.cluster.states.put("a", new PodState.Gone());
        auditor.audit();
        assertThat(fixture.cluster.warnings).isEmpty();
    }

    @Test
    void aFailedReadIsRetriedAtTheNextAudit() {
        present("a", 1);
        BoundPod b = present("b", 2);
        fixture.cluster.states.put("b", new PodState.Unreadable("down"));
        auditor.audit();
        assertThat(fixture.cluster.warnings).isEmpty();
        fixture.cluster.states.put("b", new PodState.Bound(b));
        auditor.audit();
        assertThat(fixture.cluster.warnings).hasSize(1);
    }

    /** Regression: every audit incremented the counter and logged an ERROR line. */
    @Test
    void aGpuIsCountedAndLoggedOnceForTheSamePods() {
        var log = (Logger) LoggerFactory.getLogger(Auditor.class);
        var lines = new ListAppender<ILoggingEvent>();
        lines.start();
        log.addAppender(lines);
        present("a", 1);
        present("b", 2);
        try {
            for (int i = 0; i < 10; i++) {
                fixture.events.overallocated("n1", Gpus.uuid(1, 0));
                auditor.audit();
            }
        } finally {
            log.detachAppender(lines);
        }
        assertThat(lines.list).hasSize(2);
        assertThat(fixture.cluster.warnings).hasSize(1);
        assertThat(metrics.counter("aliquot.ledger.overallocated").count()).isEqualTo(1);
        present("c", 3);
        auditor.audit();
        assertThat(metrics.counter("aliquot.ledger.overallocated").count())
                .as("a further pod is a separate finding")
                .isEqualTo(2);
    }

    /** A standby releases capacity late, so the next allocation of the leader looks like an over-allocation. */
    @Test
    void manyWrongReportsOnAStandbyDoNotHideAnOverAllocationWhenItLeads() {
        Cluster.LeaderStatus leads = fixture.cluster.leaderStatus;
        fixture.cluster.stopLeading();
        for (int i = 0; i < 1000; i++) {
            fixture.events.overallocated("n2", "GPU-" + i);
        }
        present("a", 1);
        present("b", 2);
        auditor.audit();
        assertThat(fixture.cluster.warnings).as("on a standby").isEmpty();
        fixture.cluster.leaderStatus = leads;
        auditor.audit();
        assertThat(fixture.cluster.warnings).hasSize(1);
    }

    /** Adds a pod that holds most of the GPU, both in the ledger and on the API server. */
    private BoundPod present(String name, int second) {
        BoundPod pod = BoundPods.boundAt(ExtenderFixture.bound(name, 1, 1, 50_000), second);
        fixture.ledger.observeBound(pod);
        fixture.cluster.states.put(name, new PodState.Bound(pod));
        return pod;
    }
}
