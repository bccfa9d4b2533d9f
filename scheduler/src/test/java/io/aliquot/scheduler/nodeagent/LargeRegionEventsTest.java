package io.aliquot.scheduler.nodeagent;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.api.usage.UsageReport.Finding;
import io.aliquot.api.usage.UsageReport.Problem;
import io.aliquot.api.usage.UsageReport.Problem.ClosedFile;
import io.aliquot.api.usage.UsageReport.Problem.ImageWithoutLoader;
import io.aliquot.api.usage.UsageReport.Problem.LargeRegion;
import io.aliquot.api.usage.UsageReport.Problem.ProcessTableFull;
import io.aliquot.scheduler.extender.ExtenderFixture;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Pod {@code a} holds a share of a GPU of node 1. */
class LargeRegionEventsTest {
    private final ExtenderFixture fixture = new ExtenderFixture();
    private List<UsageReport> reports = List.of();
    private final ContainerEvents events = new ContainerEvents(() -> reports, fixture.ledger, fixture.cluster);

    @BeforeEach
    void start() {
        fixture.holds("a", 1, 0, 3000, 0);
    }

    @Test
    void thePodOfALargeRegionGetsOneEvent() {
        reports = List.of(report("n1", "default", "a"));
        events.report();
        events.report();
        assertThat(fixture.cluster.warnings)
                .containsExactly("a GpuRegionTooLarge: container main made its region, a file on the node's disk, 300"
                        + " MiB large, where its programs need less than 1 MiB. The node's agent has cut it");
    }

    @Test
    void thePodOfARegionThatTheAgentCannotCutIsToBeDeleted() {
        reports = List.of(report("n1", "default", "a", false));
        events.report();
        assertThat(fixture.cluster.warnings)
                .singleElement()
                .asString()
                .contains("too large for the node's agent to cut", "delete the pod");
    }

    @Test
    void thePodOfAClosedFileGetsAnEventBesideThatOfALargeRegion() {
        reports = List.of(report("n1", "default", "a"), report("n1", "default", "a", new ClosedFile()));
        events.report();
        events.report();
        assertThat(fixture.cluster.warnings)
                .hasSize(2)
                .last()
                .asString()
                .startsWith("a GpuFileClosed: container main has closed one of");
    }

    @Test
    void thePodOfAContainerWithAsManyProcessesAsCanBeGetsAnEvent() {
        reports = List.of(report("n1", "default", "a", new ProcessTableFull()));
        events.report();
        events.report();
        assertThat(fixture.cluster.warnings)
                .singleElement()
                .asString()
                .startsWith("a GpuProcessTableFull: 512 processes of container main hold GPU memory");
    }

    @Test
    void thePodOfAnImageWithoutALoaderIsToldWhatToDo() {
        reports = List.of(report("n1", "default", "a", new ImageWithoutLoader()));
        events.report();
        events.report();
        assertThat(fixture.cluster.warnings)
                .singleElement()
                .asString()
                .startsWith("a GpuImageWithoutLoader: the image of container main has no dynamic loader")
                .contains("the share stays unused: use an image with glibc");
    }

    /** What a wrong or malicious agent may say. */
    @Test
    void noOtherPodGetsOne() {
        reports = List.of(report("n2", "default", "a"), report("n1", "default", "b"), report("n1", "other", "a"));
        events.report();
        assertThat(fixture.cluster.warnings).isEmpty();
    }

    /** OveruseMonitor writes the event of the second. */
    @Test
    void thePodOfAContainerThatSeesNoGpuIsToldTheHandler() {
        var main = new PodContainer("default", "a", "uid-a", "main");
        reports = List.of(new UsageReport(
                Instant.EPOCH,
                "n1",
                List.of(),
                List.of(),
                List.of(),
                List.of(
                        new Finding(main, new Problem.GpuNotSeen()),
                        new Finding(main, new Problem.LimitsNotSeen("/etc/aliquot"))),
                Optional.empty()));
        events.report();
        assertThat(fixture.cluster.warnings)
                .singleElement()
                .asString()
                .startsWith("a GpuNotVisible: container main holds a vGPU and sees no GPU")
                .contains("RuntimeClass whose handler is NVIDIA's");
    }

    private static UsageReport report(String node, String namespace, String pod) {
        return report(node, namespace, pod, true);
    }

    private static UsageReport report(String node, String namespace, String pod, boolean cut) {
        return report(node, namespace, pod, new LargeRegion(300L << 20, cut));
    }

    private static UsageReport report(String node, String namespace, String pod, Problem problem) {
        var finding = new Finding(new PodContainer(namespace, pod, "", "main"), problem);
        return new UsageReport(
                Instant.EPOCH, node, List.of(), List.of(), List.of(), List.of(finding), Optional.empty());
    }
}
