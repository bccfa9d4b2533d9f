package io.aliquot.scheduler.extender;

import static io.aliquot.scheduler.extender.ExtenderFixture.id;
import static io.aliquot.scheduler.extender.ExtenderFixture.mebibytes;
import static io.aliquot.scheduler.extender.ExtenderFixture.pod;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.extender.Wire.HostPriority;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerInvariants;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.NodeRuntime;
import io.aliquot.scheduler.scoring.NodeScoring;
import io.aliquot.scheduler.scoring.ScoringPolicy;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

class FilterAndPrioritizeTest {
    private static final List<String> NODES = List.of("n1", "n2");

    private final ExtenderFixture fixture = new ExtenderFixture();
    private final FilterAndPrioritize binpack = fixture.filterAndPrioritize(Placement.BINPACK, 100);
    private final FilterAndPrioritize spread = fixture.filterAndPrioritize(Placement.SPREAD, 100);

    @Test
    void withBinpackTenPodsShareAGpuAndTheEleventhTakesAnother() {
        assertThat(gpusOf(binpack, 10)).hasSize(1);
        assertThat(gpusOf(binpack, 1)).hasSize(2);
    }

    @Test
    void withSpreadElevenPodsUseAllFourGpus() {
        assertThat(gpusOf(spread, 11)).hasSize(4);
    }

    private int created;

    /** Places this number of pods of 8000 MiB as kube-scheduler does, and returns the GPUs that are then in use. */
    private Set<String> gpusOf(FilterAndPrioritize filterAndPrioritize, int pods) {
        for (int i = 0; i < pods; i++) {
            String name = "p" + created++;
            Wire.Pod pod = pod(
                    name,
                    mebibytes(8000),
                    ", \"annotations\": {\"aliquot.io/gpu-placement\": \""
                            + (filterAndPrioritize == binpack ? "binpack" : "spread") + "\"}");
            List<String> fitting = filterAndPrioritize.filter(pod, NODES).nodeNames();
            String node = filterAndPrioritize.prioritize(pod, fitting).stream()
                    .max(Comparator.comparingInt(HostPriority::score))
                    .orElseThrow()
                    .host();
            assertThat(fixture.binder.bind(id(name), node).error()).isEmpty();
        }
        var used = new HashSet<String>();
        LedgerInvariants.taken(fixture.ledger).forEach((gpu, taken) -> {
            if (taken.slots() > 0) {
                used.add(gpu);
            }
        });
        return used;
    }

    @Test
    void aNodeWhoseRuntimeCannotStartThePodIsRefusedUntilItCan() {
        String why = "the node's container runtime has no handler nvidia, which the pod's RuntimeClass nvidia names:"
                + " configure it in containerd or CRI-O";
        fixture.ledger.putRuntimeClass("nvidia", "nvidia");
        fixture.runtime(1, new NodeRuntime(Map.of("", true, "runc", true), ""));
        fixture.runtime(2, new NodeRuntime(Map.of("", true, "nvidia", true), ""));
        Wire.Pod pod = podWithSpec("a", "\"runtimeClassName\": \"nvidia\"");

        Wire.FilterResult result = spread.filter(pod, NODES);

        assertThat(result.nodeNames()).containsExactly("n2");
        assertThat(result.failedAndUnresolvableNodes()).isEqualTo(Map.of("n1", why));
        assertThat(fixture.binder.bind(id("a"), "n1").error()).contains(why);

        fixture.events.takeFreed();
        fixture.ledger.putRuntimeClass("nvidia", "runc"); // another RuntimeClass of the same name
        assertThat(fixture.events.takeFreed()).as("Pending pods are retried").containsExactlyInAnyOrder("n1", "n2");
        assertThat(spread.filter(pod, NODES).nodeNames()).containsExactly("n1");
        fixture.ledger.removeRuntimeClass("nvidia");
        assertThat(spread.filter(pod, NODES).nodeNames()).containsExactlyInAnyOrder("n1", "n2");
    }

    @Test
    void aPodWithAUserNamespaceFitsWhereTheHandlerSupportsThem() {
        fixture.runtime(2, new NodeRuntime(Map.of("", true), ""));

        Wire.FilterResult result = spread.filter(podWithSpec("a", "\"hostUsers\": false"), NODES);

        assertThat(result.nodeNames()).containsExactly("n2");
        assertThat(result.failedAndUnresolvableNodes())
                .extractingByKey("n1")
                .asString()
                .startsWith("the node's container runtime does not report user namespaces");
    }

    private static Wire.Pod podWithSpec(String name, String fields) {
        return ExtenderFixture.podWithSpec(name, mebibytes(8000), fields);
    }

    private static final String BY_FRAGMENTATION =
            ", \"annotations\": {\"aliquot.io/node-placement\": \"fragmentation\","
                    + " \"aliquot.io/gpu-placement\": \"fragmentation\"}";

    /** Pods request whole GPUs and quarters: a quarter fills a gap of that size, even if another node is fuller. */
    @Test
    void fragmentationPlacesAPodInAGapOfItsSize() {
        for (int i = 0; i < 8; i++) {
            binpack.filter(pod("large" + i, mebibytes(80_000)), NODES);
            binpack.filter(pod("small" + i, mebibytes(20_000)), NODES);
        }
        fixture.pass(Ledger.RESERVATION_TIME.plusSeconds(1));
        fixture.ledger.expire();
        fixture.takenElsewhere("x", 1, 0, 70_000); // the fuller node, but the pod would split an empty GPU
        fixture.takenElsewhere("y", 2, 1, 60_000);
        Wire.Pod pod = pod("a", mebibytes(20_000), BY_FRAGMENTATION);

        List<String> fitting = binpack.filter(pod, NODES).nodeNames();

        assertThat(fitting.get(0)).isEqualTo("n2");
        assertThat(scores(binpack, pod, NODES)).extractingByKey("n2").isEqualTo(10);
        assertThat(fixture.binder.bind(id("a"), "n2").error()).isEmpty();
        assertThat(LedgerInvariants.taken(fixture.ledger))
                .hasEntrySatisfying(
                        Gpus.uuid(2, 1), taken -> assertThat(taken.memoryMiB()).isEqualTo(80_000));
    }

    /** After filter reserves capacity, this scoring policy prefers the other node. */
    @Test
    void theNodeReservedByFilterGetsTheHighestScoreEvenIfScoresChange() {
        ScoringPolicy.Model emptiest = (demand, before, after) -> after.free();
        ScoringPolicy.Model fullest = (demand, before, after) -> -after.free();
        var pods = new AtomicInteger();
        ScoringPolicy fickle = (demands, nodes) -> pods.addAndGet(demands.size()) < 2 ? emptiest : fullest;
        var ledger = new Ledger(fixture.now::get, fixture.events);
        var scoring = new NodeScoring(ledger, fickle);
        ExtenderFixture.node(ledger, 1, Gpus.gpu(1, 0, ExtenderFixture.MEMORY));
        ExtenderFixture.node(ledger, 2);
        var filterAndPrioritize = new FilterAndPrioritize(
                ledger, scoring, fixture.cluster, fixture.pending, Placement.FRAGMENTATION, 100);
        Wire.Pod pod = pod("a", mebibytes(20_000));

        assertThat(filterAndPrioritize.filter(pod, NODES).nodeNames()).containsExactly("n2", "n1");

        scoring.observe("b", pod.template().request());
        assertThat(scores(filterAndPrioritize, pod, NODES)).containsOnly(Map.entry("n1", 9), Map.entry("n2", 10));
    }

    @Test
    void withFragmentationThePreferencesOfThePodLimitTheScores() {
        String affinity = """
                "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                  {"weight": 1, "preference": {}}]}},""";
        String json = ExtenderFixture.podJson("a", mebibytes(20_000), BY_FRAGMENTATION)
                .replace("\"spec\": {", "\"spec\": {" + affinity);
        Wire.Pod pod = ExtenderFixture.read(json);
        fixture.takenElsewhere("y", 2, 1, 60_000);

        assertThat(binpack.filter(pod, NODES).nodeNames()).containsExactlyInAnyOrder("n1", "n2");
        assertThat(scores(binpack, pod, NODES).values()).contains(2).allMatch(score -> score <= 2);
    }

    private static Map<String, Integer> scores(
            FilterAndPrioritize filterAndPrioritize, Wire.Pod pod, List<String> nodes) {
        return filterAndPrioritize.prioritize(pod, nodes).stream()
                .collect(Collectors.toMap(HostPriority::host, HostPriority::score));
    }

    @Test
    void everyRejectedNodeHasItsReason() {
        fixture.ledger.putNode("n2", new NodeFacts.Unavailable("not labelled gpu=on"));
        fixture.takenElsewhere("x", 1, 0, 78_000);
        fixture.takenElsewhere("y", 1, 1, 78_000);
        var answer = binpack.filter(pod("a", mebibytes(3000)), List.of("n1", "n2", "nobody"));
        assertThat(answer.nodeNames()).isEmpty();
        assertThat(answer.failedNodes()).isEmpty();
        assertThat(answer.failedAndUnresolvableNodes())
                .isEqualTo(Map.of(
                        "n1",
                        "no GPU with 3000 MiB free",
                        "n2",
                        "not labelled gpu=on",
                        "nobody",
                        "the Aliquot scheduler does not know the node yet"));
        assertThat(answer.error()).isEmpty();
    }

    @Test
    void theNominatedNodeIsNotReportedAsUnresolvable() {
        fixture.takenElsewhere("x", 1, 0, 78_000);
        fixture.takenElsewhere("y", 1, 1, 78_000);
        String json = ExtenderFixture.podJson("a", mebibytes(3000), "")
                .replace("\"status\": {}", "\"status\": {\"nominatedNodeName\": \"n1\"}");
        var nominated = ExtenderFixture.read(json);
        var answer = binpack.filter(nominated, List.of("n1"));
        assertThat(answer.failedNodes()).isEqualTo(Map.of("n1", "no GPU with 3000 MiB free"));
        assertThat(answer.failedAndUnresolvableNodes()).isEmpty();
    }

    @Test
    void aPodThatNoNodeCanEverHoldGetsThatReason() {
        var answer = binpack.filter(pod("a", "\"aliquot.io/vgpu\": \"3\", \"nvidia.com/gpumem\": \"1k\""), NODES);
        String reason = "requests 3 vGPUs on different GPUs, no node has more than 2 GPUs";
        assertThat(answer.failedAndUnresolvableNodes()).isEqualTo(Map.of("n1", reason, "n2", reason));
    }

    @Test
    void anUnknownPreferenceIsAnErrorThatNamesTheAllowedValues() {
        var unknown = pod("a", mebibytes(1), ", \"annotations\": {\"aliquot.io/gpu-placement\": \"best\"}");
        assertThat(binpack.filter(unknown, NODES).failedAndUnresolvableNodes())
                .containsEntry(
                        "n1",
                        "annotation aliquot.io/gpu-placement: \"best\" is unknown; allowed: binpack, spread, fragmentation, topology");
        var wrong = pod("a", mebibytes(1), ", \"annotations\": {\"aliquot.io/numa\": \"1\"}");
        assertThat(binpack.filter(wrong, NODES).failedAndUnresolvableNodes())
                .containsEntry("n1", "annotation aliquot.io/numa: \"1\" is unknown; allowed: required, preferred");
        var nonsense = pod("a", "\"nvidia.com/gpumem\": \"3Gi\"");
        assertThat(binpack.filter(nonsense, NODES).failedAndUnresolvableNodes())
                .containsEntry("n1", "container main: nvidia.com/gpumem counts MiB: write 3072 instead of 3Gi");
        assertThat(binpack.prioritize(nonsense, NODES))
                .containsExactly(new HostPriority("n1", 0), new HostPriority("n2", 0));
    }

    @Test
    void aReservationIsNotFreeForTheNextPod() {
        binpack.filter(pod("a", mebibytes(80_000)), List.of("n1"));
        binpack.filter(pod("b", mebibytes(80_000)), List.of("n1"));
        assertThat(binpack.filter(pod("c", mebibytes(80_000)), List.of("n1")).nodeNames())
                .isEmpty();
    }

    @Test
    void filterReturnsOnlyTheBestNodesUnlessThePodHasPreferences() {
        fixture.takenElsewhere("x", 2, 0, 1000);
        var one = fixture.filterAndPrioritize(Placement.BINPACK, 1);
        assertThat(one.filter(pod("a", mebibytes(1)), NODES).nodeNames()).containsExactly("n2");
        var all = fixture.filterAndPrioritize(Placement.BINPACK, 0);
        assertThat(all.filter(pod("b", mebibytes(1)), NODES).nodeNames()).containsExactly("n2", "n1");
        String json = ExtenderFixture.podJson("c", mebibytes(1), "")
                .replace(
                        "\"schedulerName\"",
                        "\"affinity\": {\"nodeAffinity\": {\"preferredDuringSchedulingIgnoredDuringExecution\": "
                                + "[{\"weight\": 1}]}}, \"schedulerName\"");
        var preferring = ExtenderFixture.read(json);
        assertThat(one.filter(preferring, NODES).nodeNames()).hasSize(2);
        assertThat(one.prioritize(preferring, NODES))
                .containsExactly(new HostPriority("n1", 0), new HostPriority("n2", 2));
    }

    @Test
    void theNodePlacementOfThePodOverridesTheDefault() {
        fixture.takenElsewhere("x", 2, 0, 1000);
        var spreading = pod("a", mebibytes(1), ", \"annotations\": {\"aliquot.io/node-placement\": \"spread\"}");
        assertThat(binpack.prioritize(spreading, NODES))
                .containsExactly(new HostPriority("n1", 10), new HostPriority("n2", 0));
    }

    @Test
    void aPodWithoutAGpuRequestFitsOnEveryNode() {
        var nothing = pod("a", "\"memory\": \"1Gi\"");
        assertThat(binpack.filter(nothing, List.of("n1", "cpu-only")).nodeNames())
                .containsExactly("n1", "cpu-only");
    }

    @Test
    void aStandbyAnswersFilterWithAnError() {
        fixture.cluster.stopLeading();
        assertThat(binpack.filter(pod("a", mebibytes(1)), NODES).error()).isEqualTo("another one holds the Lease");
    }
}
