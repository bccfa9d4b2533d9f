package io.aliquot.scheduler.nodeagent;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.api.usage.UsageReport.ApplicationXid;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.placement.Gpus;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Pod {@code a} holds a share of a GPU of node 1. */
class ApplicationXidEventsTest {
    private static final String EVENT =
            "a GpuProgramError: a program of container main caused XID 31 (memory page fault) on " + Gpus.uuid(1, 0)
                    + ", which works as before. No other container used the GPU then";

    private final ExtenderFixture fixture = new ExtenderFixture();
    private final List<UsageReport> reports = new ArrayList<>();
    private final ContainerEvents events = new ContainerEvents(() -> reports, fixture.ledger, fixture.cluster);

    @BeforeEach
    void start() {
        fixture.holds("a", 1, 0, 3000, 0);
    }

    @Test
    void thePodGetsOneEventForEachError() {
        report("n1", xid("uid-a", Gpus.uuid(1, 0), 31));
        events.report();
        events.report();
        assertThat(fixture.cluster.warnings).containsExactly(EVENT);

        report("n1", xid("uid-a", Gpus.uuid(1, 0), 31), xid("uid-a", Gpus.uuid(1, 0), 13));
        events.report();
        assertThat(fixture.cluster.warnings).hasSize(2).last().asString().contains("caused XID 13 ");
    }

    /** What a wrong or malicious agent may say. */
    @Test
    void noOtherPodGetsOne() {
        report("n2", xid("uid-a", Gpus.uuid(1, 0), 31));
        report(
                "n1",
                xid("uid-a", Gpus.uuid(1, 1), 31),
                xid("uid-b", Gpus.uuid(1, 0), 31),
                xid("", Gpus.uuid(1, 0), 31));
        events.report();
        assertThat(fixture.cluster.warnings).isEmpty();
    }

    private void report(String node, ApplicationXid... xids) {
        reports.removeIf(report -> report.node().equals(node));
        reports.add(new UsageReport(Instant.EPOCH, node, List.of(), List.of(), List.of(xids)));
    }

    private static ApplicationXid xid(String uid, String gpu, int number) {
        return new ApplicationXid(gpu, number, "memory page fault", new PodContainer("default", "a", uid, "main"));
    }
}
