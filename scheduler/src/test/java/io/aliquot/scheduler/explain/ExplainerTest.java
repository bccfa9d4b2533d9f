package io.aliquot.scheduler.explain;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.ForeignHolder;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth.Unhealthy;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.cluster.LabelSelector;
import io.aliquot.scheduler.explain.Explanation.Score;
import io.aliquot.scheduler.explain.Explanation.Term;
import io.aliquot.scheduler.explain.Explanation.Victim;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.ContainerShare;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerListener;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeGpus;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.placement.PodRuntime;
import io.aliquot.scheduler.placement.PodScopes;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.preemption.Budgets.Budget;
import io.aliquot.scheduler.scoring.NodeScoring;
import io.aliquot.scheduler.scoring.fragmentation.Fragmentation;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

class ExplainerTest {
    private static final PodId POD = new PodId("team", "pending", "uid-pending");
    private static final int MEMORY = 40_000;
    private static final Instant SINCE = Instant.parse("2026-11-26T16:00:00Z");

    private final Ledger ledger = new Ledger(System::nanoTime, new LedgerListener() {
        @Override
        public void capacityFreed(String node) {}

        @Override
        public void overallocated(String node, String gpu) {}
    });
    private final NodeScoring scoring = new NodeScoring(ledger, new Fragmentation());
    private final Budgets budgets = new Budgets();
    private final Explainer explainer = new Explainer(ledger, scoring, budgets);

    @Test
    void withoutNodesTheSummarySaysThatTheSchedulerKnowsNone() {
        assertThat(explain(Gpus.request("APP:main: gpumem=1")).summary())
                .isEqualTo("the scheduler knows no node with shared GPUs");
    }

    @Test
    void theExplanationOfAPodThatFitsNamesTheNodesAndSuggestsNothing() {
        node(1, 2);
        Explanation explanation = explain(Gpus.request("APP:main: gpumem=100"));
        assertThat(explanation.fittingNodes()).containsExactly("n1");
        assertThat(explanation.summary()).isEqualTo("1/1 nodes fit the pod's GPU requests (n1)");
        assertThat(explanation.suggestions()).isEmpty();
        assertThat(explanation.preemptionOptions()).isEmpty();
    }

    @Test
    void bestNodesAreSortedByThePolicysScoreAndListItsTerms() {
        node(1, 2);
        node(2, 2);
        hold("a", 2, 0, 10_000, 0, 0);
        PodGpuRequest request = Gpus.request("APP:main: gpumem=20000");
        scoring.observe("uid-pending", request);

        List<Score> binpack = bestNodes(request, Placement.BINPACK);
        assertThat(binpack).extracting(Score::node).containsExactly("n2", "n1");
        assertThat(binpack.get(1).terms()).containsExactly(new Term("fullness", (int)
                Math.round(1000 * score(request, Placement.BINPACK, "n1"))));
        assertThat(bestNodes(request, Placement.SPREAD)).extracting(Score::node).containsExactly("n1", "n2");
        // On n2 the pod uses a GPU that is too full for a second pod of this kind; both GPUs of n1 stay usable.
        List<Score> fragmentation = bestNodes(request, Placement.FRAGMENTATION);
        assertThat(fragmentation).extracting(Score::node).containsExactly("n2", "n1");
        for (Score scored : fragmentation) {
            assertThat(scored.terms()).extracting(Term::name).containsExactly("waste", "scarcity");
            double cost = scored.terms().stream().mapToInt(Term::thousandths).sum();
            assertThat(score(request, Placement.FRAGMENTATION, scored.node())).isCloseTo(-cost, within(1.0));
        }
        assertThat(score(request, Placement.FRAGMENTATION, "n2"))
                .isGreaterThan(score(request, Placement.FRAGMENTATION, "n1"));
    }

    private double score(PodGpuRequest request, Placement policy, String node) {
        return scoring.forPod(POD.uid(), request, policy).score(node);
    }

    private List<Score> bestNodes(PodGpuRequest request, Placement policy) {
        return explainer.bestNodes(POD, request, policy, ledger.nodeNames());
    }

    @Test
    void theSummaryNamesTheNearestGpuAndTheAmountThatItLacks() {
        node(1, 1);
        node(2, 2);
        hold("a", 1, 0, 30_000, 0, 0);
        hold("b", 2, 0, 32_000, 0, 0);
        hold("c", 2, 1, 36_000, 80, 0);
        Explanation explanation = explain(Gpus.request("APP:main: gpumem=12000 gpucores=30"));
        assertThat(explanation.summary())
                .isEqualTo("0/2 nodes fit: 2 no GPU with 12000 MiB free; closest is n1, where " + Gpus.uuid(1, 0)
                        + " lacks 2000 MiB");
        assertThat(explanation.nearest())
                .extracting(Explanation.NodeShortfall::node)
                .containsExactly("n1", "n2");
        assertThat(explanation.nearest().get(0).gpus())
                .containsExactly(new Explanation.GpuShortfall("main", Gpus.uuid(1, 0), "lacks 2000 MiB", 2000, 0, 0));
        assertThat(explanation.suggestions()).containsExactly("nvidia.com/gpumem: 10000 instead of 12000");
        assertThat(explainer.gpuShortfalls(POD, Gpus.request("APP:main: gpumem=12000 gpucores=30"), "n2"))
                .extracting(Explanation.GpuShortfall::text)
                .containsExactly("lacks 4000 MiB", "lacks 8000 MiB and 10 % of its cores");
    }

    @Test
    void theSummaryNamesMissingCoresSlotsAndWholeCards() {
        node(1, 1);
        hold("a", 1, 0, 1000, 80, 0);
        assertThat(explain(Gpus.request("APP:main: gpumem=1000 gpucores=30")).summary())
                .endsWith("closest is n1, where " + Gpus.uuid(1, 0) + " lacks 10 % of its cores");
        assertThat(explain(Gpus.request("APP:main: gpumem=1000 gpucores=30")).suggestions())
                .containsExactly("nvidia.com/gpucores: 20 instead of 30");
        Explanation whole = explain(Gpus.request("APP:main: gpu=1"));
        assertThat(whole.summary()).endsWith("already has 1 vGPU");
        assertThat(whole.suggestions()).containsExactly("nvidia.com/gpumem: 39000 instead of a whole card");
        for (int i = 0; i < 9; i++) {
            hold("s" + i, 1, 0, 1, 0, 0);
        }
        assertThat(explain(Gpus.request("APP:main: gpumem=1")).summary()).endsWith("lacks a slot");
        assertThat(cause(Gpus.request("APP:main: gpumem=1"))).isEqualTo(PendingCause.SLOTS);
    }

    @Test
    void onAGpuScaledBelowItsMemoryAWholeCardLacksOnlyAFreeGpu() {
        var inventory = new Inventory(
                new VisibleDevices("{uuid}"), new Scaling(90), Scaling.ONE, 10, List.of(Gpus.gpu(1, 0, MEMORY)));
        ledger.putNode(
                "n1",
                new NodeFacts.Sharing(
                        new NodeGpus(inventory, SharingMode.CORE_MEMORY, Set.of()),
                        Placement.BINPACK,
                        HostResources.NONE));
        hold("a", 1, 0, 1000, 0, 0);
        PodGpuRequest request = Gpus.request("APP:main: gpu=1");
        assertThat(explain(request).summary()).endsWith("already has 1 vGPU");
        assertThat(explainer.cause(POD, request, ledger.nodeNames())).isEqualTo(PendingCause.WHOLE_CARD);
        assertThat(explainer.gpuShortfalls(POD, Gpus.request("APP:main: gpumem-percentage=100"), "n1"))
                .extracting(Explanation.GpuShortfall::text)
                .containsExactly("lacks 1000 MiB");
    }

    @Test
    void ifNoEvictionHelpsTheSummarySaysSoAndEachGpuHasItsReason() {
        ledger.putNode(
                "n1",
                new NodeFacts.Sharing(
                        new NodeGpus(
                                Gpus.inventory(
                                        10,
                                        Gpus.gpu(1, 0, MEMORY),
                                        Gpus.gpu(1, 1, MEMORY, false),
                                        Gpus.gpu(1, 2, 1000),
                                        Gpus.gpu(1, 3, MEMORY)
                                                .withHolders(List.of(new ForeignHolder("team/x", "nvidia.com/gpu")))),
                                SharingMode.CORE_MEMORY,
                                Set.of(Gpus.uuid(1, 0))),
                        Placement.BINPACK,
                        HostResources.NONE));
        PodGpuRequest request = Gpus.request("APP:main: gpumem=2000");
        Explanation explanation = explain(request);
        assertThat(explanation.summary())
                .endsWith("; no eviction would help; 1 GPU that would fit is unhealthy: XID error 48");
        assertThat(explanation.nearest()).isEmpty();
        assertThat(explanation.refusals()).allMatch(Explanation.Refusal::unresolvable);
        assertThat(explainer.gpuShortfalls(POD, request, "n1"))
                .extracting(Explanation.GpuShortfall::text)
                .containsExactly(
                        "is cordoned",
                        "is unhealthy: XID error 48",
                        "has at most 1000 MiB for a vGPU",
                        "is held by pod team/x through nvidia.com/gpu");
        assertThat(cause(request)).isEqualTo(PendingCause.CLOSED);
        assertThat(cause(Gpus.request("APP:main: gpumem=50000"))).isEqualTo(PendingCause.IMPOSSIBLE);
        PodGpuRequest choosy = Gpus.request(Map.of("aliquot.io/use-gpu-model", "H100"), "APP:main: gpumem=500");
        assertThat(explainer.gpuShortfalls(POD, choosy, "n1"))
                .extracting(Explanation.GpuShortfall::text)
                .containsOnly("is excluded by the pod's annotations (model, UUID or index)");
        assertThat(explain(choosy).suggestions()).containsExactly("no annotations that select GPUs");
    }

    @Test
    void theSummaryNamesTheReasonOfUnhealthyGpusIfTheyHaveOneReason() {
        Gpu lost = Gpus.gpu(1, 0, MEMORY).withHealth(new Unhealthy("lost", SINCE));
        Gpu alsoLost = Gpus.gpu(2, 0, MEMORY).withHealth(new Unhealthy("lost", SINCE.plusSeconds(9)));
        Gpu small = Gpus.gpu(2, 1, 1000).withHealth(new Unhealthy("remapping failed", SINCE));
        put("n1", lost);
        put("n2", alsoLost, small);
        PodGpuRequest request = Gpus.request("APP:main: gpumem=2000");
        assertThat(explain(request).summary())
                .endsWith("; no eviction would help; 2 GPUs that would fit are unhealthy: lost");
        assertThat(explainer.gpuShortfalls(POD, request, "n2"))
                .extracting(Explanation.GpuShortfall::text)
                .containsExactly(
                        "is unhealthy since 2026-11-26T16:00:09Z: lost",
                        "is unhealthy since 2026-11-26T16:00:00Z: remapping failed");
        assertThat(explain(Gpus.request("APP:main: gpumem=500")).summary())
                .endsWith("; no eviction would help; 3 GPUs that would fit are unhealthy, for different reasons");
        put("n3", Gpus.gpu(3, 0, 1000));
        assertThat(explain(Gpus.request("APP:main: gpumem=500")).summary())
                .as("a node fits")
                .doesNotContain("unhealthy");
    }

    private void put(String node, Gpu... gpus) {
        ledger.putNode(node, new NodeFacts.Sharing(Gpus.inventory(10, gpus), Placement.BINPACK, HostResources.NONE));
    }

    @Test
    void theCauseIsClosedIfTheAgentIsNotReadyEvenIfTheNodeIsFull() {
        node(1, 1);
        node(2, 1);
        hold("a", 1, 0, 30_000, 0, 0);
        hold("b", 2, 0, 30_000, 0, 0);
        ledger.setAgentReady("n1", false);
        assertThat(cause(Gpus.request("APP:main: gpumem=20000"))).isEqualTo(PendingCause.MEMORY);
        ledger.setAgentReady("n2", false);
        assertThat(cause(Gpus.request("APP:main: gpumem=20000"))).isEqualTo(PendingCause.CLOSED);
        assertThat(cause(Gpus.request("APP:main: gpumem=50000"))).isEqualTo(PendingCause.IMPOSSIBLE);
        assertThat(cause(Gpus.request("APP:main: gpu=2"))).isEqualTo(PendingCause.IMPOSSIBLE);
    }

    private PendingCause cause(PodGpuRequest request) {
        return explainer.cause(POD, request, ledger.nodeNames());
    }

    @Test
    void preemptionOptionsHaveTheFewestVictimsOfTheLowestPriority() {
        node(1, 1);
        node(2, 1);
        hold("important", 1, 0, 20_000, 0, 100);
        hold("small", 1, 0, 5_000, 0, 5);
        hold("large", 1, 0, 15_000, 0, 7);
        hold("other", 2, 0, 40_000, 0, 50);
        PodGpuRequest request = Gpus.request("APP:main: gpumem=15000");
        Explanation explanation = explainer.explain(POD, request, 60, true, ledger.nodeNames());
        assertThat(explanation.preemptionOptions())
                .containsExactly(
                        new Explanation.PreemptionOption("n1", List.of(victim("large", 7))),
                        new Explanation.PreemptionOption("n2", List.of(victim("other", 50))));
        assertThat(explainer.explain(POD, request, 6, true, ledger.nodeNames()).preemptionOptions())
                .isEmpty();
        assertThat(explainer
                        .explain(POD, request, 60, false, ledger.nodeNames())
                        .preemptionOptions())
                .isEmpty();
    }

    @Test
    void aPodThatADisruptionBudgetProtectsIsAVictimOnlyIfNoOtherPodSuffices() {
        node(1, 1);
        hold("guarded", 1, 0, 20_000, 0, 0);
        hold("other", 1, 0, 20_000, 0, 0);
        budgets.putPod("uid-guarded", Map.of("app", "guarded"));
        budgets.putBudget(
                new Budget("team", "guard", LabelSelector.of(Map.of("app", "guarded"), List.of()), 0, Set.of()));
        assertThat(explainer
                        .explain(POD, Gpus.request("APP:main: gpumem=20000"), 1, true, ledger.nodeNames())
                        .preemptionOptions())
                .containsExactly(new Explanation.PreemptionOption("n1", List.of(victim("other", 0))));
    }

    @Test
    void terminatingPodsAreVictimsBeforeOthersWhateverTheirPriority() {
        node(1, 1);
        var share = BoundPods.main(Gpus.uuid(1, 0), new GpuAmount(30_000, 0, 1, false));
        ledger.observeBound(new BoundPod(
                new PodId("team", "ending", "uid-ending"),
                "n1",
                1,
                List.of(share),
                HostResources.NONE,
                PodScopes.NONE,
                1000,
                Instant.EPOCH,
                Instant.EPOCH,
                BoundPods.GRACE,
                Instant.now().plusSeconds(30)));
        hold("low", 1, 0, 5_000, 0, -1);
        assertThat(explainer
                        .explain(POD, Gpus.request("APP:main: gpumem=20000"), 0, true, ledger.nodeNames())
                        .preemptionOptions())
                .containsExactly(
                        new Explanation.PreemptionOption("n1", List.of(new Victim("team", "ending", 1000, true))));
    }

    @Test
    void theTextIsTheSameWhileTheSituationIsTheSame() {
        for (int node = 1; node <= 30; node++) {
            node(node, 4);
            for (int gpu = 0; gpu < 4; gpu++) {
                hold("p" + node + "-" + gpu, node, gpu, 30_000, 0, 0);
            }
        }
        PodGpuRequest request = Gpus.request("APP:main: gpumem=12000");
        assertThat(explain(request)).isEqualTo(explain(request));
        assertThat(explainer.eventText(POD, request, ledger.nodeNames()).orElseThrow())
                .isEqualTo(explain(request).summary() + "; would fit: "
                        + String.join(", or ", explain(request).suggestions()))
                .hasSizeLessThan(1024);
    }

    @Test
    void aRequestLargerThanAnyGpuGetsASuggestionThatFits() {
        node(1, 1);
        assertThat(explainer
                        .eventText(POD, Gpus.request("APP:main: gpumem=50000"), ledger.nodeNames())
                        .orElseThrow())
                .isEqualTo("0/1 nodes fit: 1 no GPU that large: 50000 MiB; no eviction would help;"
                        + " would fit: nvidia.com/gpumem: 40000 instead of 50000");
    }

    @Test
    void whereTheRuntimeCannotStartThePodNoOtherRequestHelps() {
        Gpu broken = Gpus.gpu(1, 0, MEMORY).withHealth(new Unhealthy("XID 79", SINCE));
        var gpus = new NodeGpus(Gpus.inventory(10, broken, Gpus.gpu(1, 1, MEMORY)), SharingMode.CORE_MEMORY, Set.of());
        ledger.putNode("n1", new NodeFacts.Sharing(gpus, Placement.BINPACK, new HostResources(1000, 1000)));
        hold("low", 1, 1, 30_000, 0, -1);
        PodGpuRequest request = Gpus.request("APP:main: gpumem=20000").withRuntime(new PodRuntime("", true));

        assertThat(explainer.eventText(POD, request, ledger.nodeNames()).orElseThrow())
                .isEqualTo(
                        "0/1 nodes fit: 1 the node's container runtime does not report user namespaces, which hostUsers: false"
                                + " needs: containerd does from 2.0 on; no eviction would help");
        Explanation explanation = explain(request);
        assertThat(explanation.refusals())
                .singleElement()
                .satisfies(refusal -> assertThat(refusal.nodes().examples()).containsExactly("n1"));
        assertThat(explanation.suggestions()).isEmpty();
        assertThat(explanation.preemptionOptions()).isEmpty();
        assertThat(explainer.cause(POD, request, ledger.nodeNames())).isEqualTo(PendingCause.IMPOSSIBLE);
    }

    /** With each suggestion, and without the victims of each option, the pod fits; with one victim left it does not. */
    @Test
    void suggestionsAndPreemptionOptionsMakeThePodFit() {
        long seed = System.nanoTime();
        var random = new Random(seed);
        for (int round = 0; round < 150; round++) {
            var fixture = new ExplainerTest();
            for (int node = 1; node <= 3; node++) {
                fixture.node(node, 1 + random.nextInt(3));
            }
            for (int pod = 0; pod < 15; pod++) {
                int node = 1 + random.nextInt(3);
                PodId id = new PodId("team", "p" + pod, "uid-p" + pod);
                PodGpuRequest request = Gpus.request("APP:main: gpu=" + (1 + random.nextInt(2)) + " gpumem="
                        + (1 + random.nextInt(30_000)) + " gpucores=" + random.nextInt(60));
                if (fixture.ledger.commit(id, "n" + node, request, 1)
                        instanceof io.aliquot.scheduler.ledger.Commitment.Granted granted) {
                    List<ContainerShare> allocations = granted.containers().entrySet().stream()
                            .map(entry -> new ContainerShare(
                                    entry.getKey(), io.aliquot.scheduler.placement.ContainerKind.APP, entry.getValue()))
                            .toList();
                    fixture.ledger.observeBound(new BoundPod(
                            id,
                            "n" + node,
                            1,
                            allocations,
                            HostResources.NONE,
                            PodScopes.NONE,
                            random.nextInt(5),
                            Instant.EPOCH,
                            Instant.EPOCH,
                            BoundPods.GRACE,
                            Instant.MAX));
                }
            }
            int memory = 10_000 + random.nextInt(30_000);
            int cores = 20 + random.nextInt(80);
            PodGpuRequest request = Gpus.request("APP:main: gpumem=" + memory + " gpucores=" + cores);
            Explanation explanation = fixture.explainer.explain(POD, request, 3, true, fixture.ledger.nodeNames());
            String what = "seed " + seed + " round " + round + " " + explanation;
            for (String suggestion : explanation.suggestions()) {
                int number = Integer.parseInt(suggestion.replaceAll(".*: ([0-9]+) instead.*", "$1"));
                boolean memorySuggestion = suggestion.startsWith("nvidia.com/gpumem");
                assertThat(fixture.fits(memorySuggestion ? number : memory, memorySuggestion ? cores : number))
                        .as(what)
                        .isTrue();
                assertThat(fixture.fits(memorySuggestion ? number + 1 : memory, memorySuggestion ? cores : number + 1))
                        .as(what)
                        .isFalse();
            }
            for (Explanation.PreemptionOption option : explanation.preemptionOptions()) {
                var uids = new java.util.HashSet<String>();
                option.victims().forEach(victim -> uids.add("uid-" + victim.name()));
                assertThat(fixture.ledger.feasibilityWithout(option.node(), POD.uid(), request, uids))
                        .as(what)
                        .isInstanceOf(Feasibility.Fits.class);
                for (Victim victim : option.victims()) {
                    assertThat(victim.priority()).as(what).isLessThan(3);
                    uids.remove("uid-" + victim.name());
                    assertThat(fixture.ledger.feasibilityWithout(option.node(), POD.uid(), request, uids))
                            .as(what)
                            .isInstanceOf(Feasibility.Refused.class);
                    uids.add("uid-" + victim.name());
                }
            }
        }
    }

    @Test
    void aThousandNodesAreExplainedInGroupsWithinTenSeconds() {
        for (int node = 1; node <= 1000; node++) {
            node(node, 8);
            for (int gpu = 0; gpu < 8; gpu++) {
                hold("p" + node + "-" + gpu, node, gpu, 20_000 + node % 7, 50, node % 3);
            }
        }
        PodGpuRequest request = Gpus.request("APP:main: gpu=8 gpumem=30000");
        long start = System.nanoTime();
        Explanation explanation = explainer.explain(POD, request, 2, true, ledger.nodeNames());
        long millis = (System.nanoTime() - start) / 1_000_000;
        assertThat(explanation.refusals()).hasSize(1);
        assertThat(explanation.refusals().get(0).nodes().count()).isEqualTo(1000);
        assertThat(explanation.refusals().get(0).nodes().examples()).hasSize(5);
        assertThat(explanation.nearest()).hasSize(5);
        assertThat(explanation.preemptionOptions()).hasSize(3);
        assertThat(millis).isLessThan(10_000);
    }

    private boolean fits(int memory, int cores) {
        PodGpuRequest request = Gpus.request("APP:main: gpumem=" + memory + " gpucores=" + cores);
        return ledger.nodeNames().stream()
                .anyMatch(node -> ledger.feasibility(node, POD.uid(), request) instanceof Feasibility.Fits);
    }

    private static Victim victim(String name, int priority) {
        return new Victim("team", name, priority, false);
    }

    /** Each NUMA domain of the node has one GPU that fits, and the pod requires two GPUs of one domain. */
    @Test
    void theSummarySaysThatTheFreeGpusAreInDifferentNumaDomains() {
        ledger.putNode(
                "n1",
                new NodeFacts.Sharing(
                        Gpus.inventory(10, gpu(0, 0), gpu(1, 0), gpu(2, 1), gpu(3, 1)),
                        Placement.BINPACK,
                        new HostResources(1000, 1000)));
        hold("a", 1, 0, 30_000, 0, 0);
        hold("b", 1, 2, 30_000, 0, 0);
        String two = "APP:main: gpu=2 gpumem=20000";

        Explanation explanation = explain(Gpus.request(Map.of(Annotations.NUMA, "required"), two));

        assertThat(explanation.summary())
                .isEqualTo("0/1 nodes fit: 1 no NUMA domain with 2 such GPUs free; closest is n1, where the "
                        + "GPUs that would fit are in different NUMA domains");
        assertThat(explanation.suggestions()).contains("aliquot.io/numa: preferred instead of required");
        assertThat(explain(Gpus.request(two)).fittingNodes()).containsExactly("n1");
    }

    private static Gpu gpu(int index, int numa) {
        return new Gpu(Gpus.uuid(1, index), index, "NVIDIA Test", MEMORY, 0, numa, Gpu.HEALTHY, Gpu.SHIM, Map.of());
    }

    private Explanation explain(PodGpuRequest request) {
        return explainer.explain(POD, request, 0, true, ledger.nodeNames());
    }

    private void node(int number, int gpus) {
        Gpu[] all = new Gpu[gpus];
        for (int i = 0; i < gpus; i++) {
            all[i] = Gpus.gpu(number, i, MEMORY);
        }
        ledger.putNode(
                "n" + number,
                new NodeFacts.Sharing(Gpus.inventory(10, all), Placement.BINPACK, new HostResources(1000, 1000)));
    }

    private void hold(String name, int node, int gpu, int memory, int cores, int priority) {
        var share = BoundPods.main(Gpus.uuid(node, gpu), new GpuAmount(memory, cores, 1, false));
        ledger.observeBound(new BoundPod(
                new PodId("team", name, "uid-" + name),
                "n" + node,
                1,
                List.of(share),
                HostResources.NONE,
                PodScopes.NONE,
                priority,
                Instant.EPOCH,
                Instant.EPOCH,
                BoundPods.GRACE,
                Instant.MAX));
    }
}
