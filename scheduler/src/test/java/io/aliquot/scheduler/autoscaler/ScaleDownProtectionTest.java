package io.aliquot.scheduler.autoscaler;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.WriteOutcome;
import io.aliquot.scheduler.cluster.FakeCluster.NodeWrite;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.ledger.BoundPod;
import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class ScaleDownProtectionTest {
    private static final Duration PERIOD = Duration.ofSeconds(5);
    private static final String DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
    private static final String MARK = "aliquot.io/scale-down-disabled";
    private static final Map<String, String> OURS = Map.of(DISABLED, "true", MARK, "true");
    private static final Map<String, String> GKE = Map.of("cloud.google.com/gke-accelerator", "nvidia-l4");

    private final ExtenderFixture fixture = new ExtenderFixture();
    private ScaleDownProtection protection = replica(Autoscaler.CLUSTER_AUTOSCALER);
    private long version = 100;

    private ScaleDownProtection replica(Autoscaler... enabled) {
        return new ScaleDownProtection(Set.of(enabled), fixture.ledger, fixture.cluster, fixture.now::get);
    }

    /**
     * Each row is what two functions of Cluster Autoscaler answer about a node whose GPUs pods share, read in the source that
     * the row names: utilization.Calculate with the cloud's GetNodeGpuConfig, and unremovableReasonAndNodeUtilization with the
     * threshold 0.5. The paths are below cluster-autoscaler/ of github.com/kubernetes/autoscaler, and below pkg/ of
     * github.com/kubernetes-sigs/cluster-autoscaler for 33c3f97bf274. Aliquot writes where the answer is to remove the node.
     */
    @ParameterizedTest(name = "{0} {1}: label {2}, {3}, annotation {4}")
    @CsvSource(delimiter = '|', emptyValue = "", textBlock = """
            2b0c0761f57d | utils/gpu/gpu.go:100-125 simulator/utilization/info.go:51-57 core/scaledown/eligibility/eligibility.go:187 | yes | vgpu=20            | absent | 0    | removes | writes
            2b0c0761f57d | utils/gpu/gpu.go:124 simulator/utilization/info.go:52,86-88                                            | yes | directx=2          | absent | 0    | removes | writes
            2b0c0761f57d | utils/gpu/gpu.go:124 simulator/utilization/info.go:59,125                                              | yes | nvidia.com/gpu=2   | absent | 0    | removes | writes
            2b0c0761f57d | core/scaledown/eligibility/eligibility.go:118-121,195                                                  | yes | vgpu=20            | true   | -    | keeps   | nothing
            2b0c0761f57d | core/scaledown/eligibility/eligibility.go:195                                                          | yes | vgpu=20            | false  | 0    | removes | nothing
            2b0c0761f57d | simulator/utilization/info.go:62-79 core/scaledown/eligibility/eligibility.go:187                      | no  | vgpu=20, cpu 0.5   | absent | 0.5  | keeps   | nothing
            d63eaf8b9e81 | utils/gpu/gpu.go:123-131,159-181 simulator/utilization/info.go:51-56                                   | yes | vgpu=20            | absent | 0    | removes | writes
            d63eaf8b9e81 | utils/gpu/gpu.go:159-164 simulator/utilization/info.go:59,133                                          | yes | directx=2          | absent | 0    | removes | writes
            d63eaf8b9e81 | core/scaledown/eligibility/eligibility.go:118-121,196                                                  | yes | directx=2          | true   | -    | keeps   | nothing
            d63eaf8b9e81 | core/scaledown/eligibility/eligibility.go:196                                                          | yes | vgpu=20            | false  | 0    | removes | nothing
            d63eaf8b9e81 | simulator/utilization/info.go:72-89 core/scaledown/eligibility/eligibility.go:188                      | no  | vgpu=20, cpu 0.5   | absent | 0.5  | removes | nothing
            d63eaf8b9e81 | simulator/utilization/info.go:72-89 core/scaledown/eligibility/eligibility.go:188                      | no  | vgpu=20, cpu 0.6   | absent | 0.6  | keeps   | nothing
            33c3f97bf274 | utils/gpu/gpu.go:126-134,162-184 simulator/utilization/info.go:51-56                                   | yes | vgpu=20            | absent | 0    | removes | writes
            33c3f97bf274 | utils/gpu/gpu.go:162-167 simulator/utilization/info.go:59,133                                          | yes | directx=2          | absent | 0    | removes | writes
            33c3f97bf274 | core/scaledown/eligibility/eligibility.go:117-120,195                                                  | yes | directx=2          | true   | -    | keeps   | nothing
            33c3f97bf274 | simulator/utilization/info.go:72-89 core/scaledown/eligibility/eligibility.go:187                      | no  | vgpu=20, cpu 0.6   | absent | 0.6  | keeps   | nothing
            """)
    void aNodeIsKeptWhereTheAutoscalerWouldTakeItForAnEmptyOne(
            String commit,
            String source,
            String label,
            String allocatable,
            String annotation,
            String utilization,
            String autoscaler,
            String expected) {
        holds();
        show(
                label.equals("yes") ? GKE : Map.of("gpu", "on"),
                annotation.equals("absent") ? Map.of() : Map.of(DISABLED, annotation));
        run(PERIOD);
        assertThat(fixture.cluster.nodeWrites).hasSize(expected.equals("writes") ? 1 : 0);
    }

    @Test
    void oneWriteProtectsANodeWithSharesAndOneReleasesItFiveMinutesAfterTheLast() {
        BoundPod pod = holds();
        show(GKE, Map.of());
        run(Duration.ofMinutes(1));
        assertThat(fixture.cluster.nodeWrites)
                .containsExactly(new NodeWrite("n1", version, values(Optional.of("true"))));

        show(GKE, OURS);
        run(Duration.ofMinutes(10));
        fixture.ledger.observeEnded(pod.id().uid());
        run(ScaleDownProtection.KEPT.minus(PERIOD.multipliedBy(2)));
        assertThat(fixture.cluster.nodeWrites).as("not before").hasSize(1);

        run(PERIOD.multipliedBy(3));
        assertThat(fixture.cluster.nodeWrites)
                .hasSize(2)
                .last()
                .isEqualTo(new NodeWrite("n1", version, values(Optional.empty())));
        show(GKE, Map.of());
        run(Duration.ofMinutes(10));
        assertThat(fixture.cluster.nodeWrites).hasSize(2);
    }

    @Test
    void aShareThatComesWithinTheFiveMinutesCausesNoWrite() {
        BoundPod pod = holds();
        show(GKE, OURS);
        run(PERIOD);
        fixture.ledger.observeEnded(pod.id().uid());
        run(Duration.ofMinutes(4));
        fixture.holds("next", 1, 0, 1000, 0);
        run(Duration.ofMinutes(10));
        assertThat(fixture.cluster.nodeWrites).isEmpty();
    }

    @Test
    void theNextLeaderRemovesWhatThePreviousOneWrote() {
        Cluster.LeaderStatus leads = fixture.cluster.leaderStatus;
        show(GKE, OURS);
        fixture.cluster.stopLeading();
        run(Duration.ofMinutes(10));
        assertThat(fixture.cluster.nodeWrites).as("a standby writes nothing").isEmpty();

        fixture.cluster.leaderStatus = leads;
        run(ScaleDownProtection.KEPT.minus(PERIOD));
        assertThat(fixture.cluster.nodeWrites)
                .as("it does not know when the last share went")
                .isEmpty();
        run(PERIOD.multipliedBy(2));
        assertThat(fixture.cluster.nodeWrites).hasSize(1);
    }

    /** The mark tells: without it the annotation is an administrator's, and with it alone an administrator removed ours. */
    @Test
    void whatAnAdministratorSetsOrRemovesIsLeftAlone() {
        for (String value : new String[] {"true", "false", ""}) {
            BoundPod pod = holds();
            show(GKE, Map.of(DISABLED, value));
            run(PERIOD);
            fixture.ledger.observeEnded(pod.id().uid());
            run(Duration.ofMinutes(10));
            assertThat(fixture.cluster.nodeWrites).as(value).isEmpty();
        }

        BoundPod pod = holds();
        show(GKE, Map.of(MARK, "true"));
        run(Duration.ofMinutes(10));
        show(GKE, Map.of(MARK, "true", DISABLED, "false"));
        run(Duration.ofMinutes(10));
        assertThat(fixture.cluster.nodeWrites)
                .as("removed or changed while there are shares")
                .isEmpty();

        fixture.ledger.observeEnded(pod.id().uid());
        run(Duration.ofMinutes(6));
        assertThat(fixture.cluster.nodeWrites)
                .as("afterward the mark goes, so that the next shares are protected")
                .containsExactly(new NodeWrite("n1", version, Map.of(MARK, Optional.empty())));
    }

    @Test
    void aWriteThatConflictsIsRepeatedAtTheNextVersionOnlyAndOneThatFailsAfterAMinute() {
        holds();
        fixture.cluster.outcomes.add(new WriteOutcome.Conflicts("the object has been modified"));
        show(GKE, Map.of());
        run(PERIOD.multipliedBy(4));
        assertThat(fixture.cluster.nodeWrites).hasSize(1);
        fixture.cluster.outcomes.add(new WriteOutcome.Refused("a policy of the cluster"));
        show(GKE, Map.of());
        run(PERIOD.multipliedBy(4));
        assertThat(fixture.cluster.nodeWrites).hasSize(2);
        run(Duration.ofMinutes(1));
        assertThat(fixture.cluster.nodeWrites).hasSize(3);
    }

    @Test
    void whereTheSettingIsOffOrTheLabelIsGoneTheAnnotationGoesAtOnceIfItIsMarked() {
        holds();
        show(Map.of("gpu", "on"), OURS);
        run(PERIOD);
        assertThat(fixture.cluster.nodeWrites).hasSize(1);

        protection = replica();
        show(GKE, OURS);
        run(PERIOD);
        show(GKE, Map.of(DISABLED, "true"));
        run(PERIOD);
        assertThat(fixture.cluster.nodeWrites).hasSize(2);
    }

    /** So that nothing is left where Aliquot is uninstalled as its documentation says. */
    @Test
    void aNodeThatLeavesIsReleasedWithItsLastShare() {
        BoundPod pod = holds();
        show(false, GKE, OURS);
        run(Duration.ofMinutes(10));
        assertThat(fixture.cluster.nodeWrites).isEmpty();
        fixture.ledger.observeEnded(pod.id().uid());
        run(PERIOD);
        assertThat(fixture.cluster.nodeWrites).hasSize(1);
    }

    @Test
    void karpentersNodesAreProtectedOnlyWhereThatIsEnabled() {
        holds();
        var labels = new HashMap<>(GKE);
        labels.put("karpenter.sh/nodepool", "gpus");
        protection = replica(Autoscaler.KARPENTER);
        show(labels, Map.of());
        run(PERIOD);
        assertThat(fixture.cluster.nodeWrites)
                .containsExactly(new NodeWrite(
                        "n1",
                        version,
                        Map.of(
                                "karpenter.sh/do-not-disrupt", Optional.of("true"),
                                "aliquot.io/do-not-disrupt", Optional.of("true"))));

        protection = replica(Autoscaler.CLUSTER_AUTOSCALER, Autoscaler.KARPENTER);
        show(labels, Map.of());
        run(PERIOD);
        assertThat(fixture.cluster.nodeWrites)
                .last()
                .satisfies(write ->
                        assertThat(write.annotations()).as("both in one write").hasSize(4));
    }

    @Test
    void aRunWritesToAFewNodesOnly() {
        for (int i = 1; i <= 50; i++) {
            ExtenderFixture.node(fixture.ledger, i);
            fixture.holds("pod-" + i, i, 0, 1000, 0);
            protection.put("n" + i, i, true, GKE, Map.of());
        }
        run(PERIOD);
        assertThat(fixture.cluster.nodeWrites).hasSize(ScaleDownProtection.MAX_WRITES_PER_RUN);
        run(PERIOD.multipliedBy(2));
        assertThat(fixture.cluster.nodeWrites).as("one each").hasSize(50);
    }

    @Test
    void aReservationIsNoShare() {
        fixture.filter("waiting", ExtenderFixture.mebibytes(1000), 0, "Never", "n1");
        show(GKE, Map.of());
        run(PERIOD);
        assertThat(fixture.cluster.nodeWrites).isEmpty();
    }

    private static Map<String, Optional<String>> values(Optional<String> value) {
        var both = new LinkedHashMap<String, Optional<String>>();
        both.put(DISABLED, value);
        both.put(MARK, value);
        return both;
    }

    private BoundPod holds() {
        return fixture.holds("train-" + ++version, 1, 0, 1000, 0);
    }

    private void show(boolean stays, Map<String, String> labels, Map<String, String> annotations) {
        protection.put("n1", ++version, stays, labels, annotations);
    }

    /** The watch shows node n1 in its next version. */
    private void show(Map<String, String> labels, Map<String, String> annotations) {
        show(true, labels, annotations);
    }

    private void run(Duration time) {
        for (long run = 0; run < time.dividedBy(PERIOD); run++) {
            fixture.pass(PERIOD);
            protection.update();
        }
    }
}
