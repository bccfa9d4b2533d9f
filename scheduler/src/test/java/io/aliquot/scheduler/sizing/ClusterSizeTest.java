package io.aliquot.scheduler.sizing;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.settings.Settings;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.util.Map;
import org.junit.jupiter.api.Test;

class ClusterSizeTest {
    private static final String SENTENCE =
            "the cluster has 4 nodes, and the memory limits of the scheduler's containers are for 2: set the chart value"
                    + " cluster.nodes to the number of nodes that the cluster may have, or"
                    + " scheduler.resources.limits.memory and kubeScheduler.resources.limits.memory";

    private final ExtenderFixture fixture = new ExtenderFixture();
    private final SimpleMeterRegistry metrics = new SimpleMeterRegistry();

    @Test
    void moreThanOneAndAHalfTimesThePlannedNodesGiveAnEventOnTheLeadersPodAndALineOfReadyz() {
        ClusterSize size = plannedFor("2");
        haveNodes(3);
        size.report();
        assertThat(size.remark()).isEmpty();
        assertThat(fixture.cluster.warnings).isEmpty();

        haveNodes(4);
        fixture.cluster.stopLeading();
        size.report();
        assertThat(size.remark()).contains(SENTENCE);
        assertThat(fixture.cluster.warnings).isEmpty();

        fixture.cluster.leaderStatus = new ExtenderFixture().cluster.leaderStatus;
        size.report();
        assertThat(fixture.cluster.warnings).containsExactly("aliquot-1 ClusterTooLarge: " + SENTENCE);
        assertThat(metrics.get("aliquot.planned.nodes").gauge().value()).isEqualTo(2);
    }

    /** The administrator has set the limits. */
    @Test
    void limitsThatFollowFromNoNumberOfNodesAreNotCompared() {
        ClusterSize size = plannedFor("");
        haveNodes(100);
        size.report();
        assertThat(size.remark()).isEmpty();
        assertThat(fixture.cluster.warnings).isEmpty();
        assertThat(metrics.getMeters()).isEmpty();
    }

    private ClusterSize plannedFor(String nodes) {
        Settings settings =
                Settings.read(Map.of(
                        "POD_NAME",
                        "aliquot-1",
                        "POD_NAMESPACE",
                        "aliquot",
                        "POD_UID",
                        "1",
                        "ALIQUOT_PLANNED_NODES",
                        nodes)::get);
        return new ClusterSize(fixture.ledger, fixture.cluster, settings, metrics);
    }

    private void haveNodes(int count) {
        for (int number = 1; number <= count; number++) {
            ExtenderFixture.node(fixture.ledger, number);
        }
    }
}
