package io.aliquot.scheduler.preemption;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Gpu;
import io.aliquot.api.names.Placement;
import io.aliquot.scheduler.apiserver.LabelSelector;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.ledger.ContainerShare;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerListener;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.preemption.Budgets.Budget;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.function.Predicate;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class VictimSearchTest {
    private static final int MEMORY = 1000;

    private final Budgets budgets = new Budgets();
    private final Ledger ledger = new Ledger(() -> 0, new LedgerListener() {
        @Override
        public void capacityFreed(String node) {}

        @Override
        public void overallocated(String node, String gpu) {
            throw new AssertionError("the test over-allocated " + gpu);
        }
    });

    @Test
    void victimsHaveTheLowestPriorityThenTheSmallestNumberThenTheYoungestAge() {
        node(2);
        hold("old", 1, share(1, 500));
        hold("young", 1, share(1, 500));
        hold("important", 5, share(0, 1000));
        assertThat(victims("APP:main: gpumem=400", EvictionCost.MAX)).containsExactly("young");
        assertThat(victims("APP:main: gpumem=600", EvictionCost.MAX)).containsExactlyInAnyOrder("old", "young");
        assertThat(victims("APP:main: gpu=2 gpumem=100", EvictionCost.MAX))
                .containsExactlyInAnyOrder("important", "young");
    }

    @Test
    void aBudgetCountsMoreThanTheNumberOfVictimsAndLessThanPriority() {
        node(2);
        hold("guarded", 1, share(0, 1000));
        hold("one", 1, share(1, 500));
        hold("other", 1, share(1, 500));
        guard(0, "guarded");
        assertThat(victims("APP:main: gpumem=1000", EvictionCost.MAX)).containsExactlyInAnyOrder("one", "other");
        hold("other", 2, share(1, 500));
        assertThat(victims("APP:main: gpumem=1000", EvictionCost.MAX)).containsExactly("guarded");
    }

    @Test
    void theChoiceAmongEqualVictimsDoesNotDependOnTheirOrder() {
        node(3);
        for (int i = 0; i < 12; i++) {
            second = 0;
            hold("p" + i, 1, share(i % 3, 250));
        }
        PodGpuRequest one = Gpus.request("APP:main: gpumem=600");
        PodGpuRequest two = Gpus.request("APP:main: gpu=2 gpumem=600");
        List<Victim> candidates = new ArrayList<>(candidates());
        Set<List<Victim>> plans = new HashSet<>();
        for (int i = 0; i < 20; i++) {
            Collections.shuffle(candidates, new Random(i));
            plans.add(
                    plan(one, candidates, true, EvictionCost.MAX).orElseThrow().victims());
            plans.add(
                    plan(two, candidates, false, EvictionCost.MAX).orElseThrow().victims());
        }
        assertThat(plans).hasSize(2);
    }

    @Test
    void aPodThatFitsNeedsNoVictimAndWithoutEnoughVictimsThereIsNoPlan() {
        node(1);
        assertThat(victims("APP:main: gpumem=400", EvictionCost.MAX)).isEmpty();
        assertThat(plan(Gpus.request("APP:main: gpumem=2000"), List.of(), true, EvictionCost.MAX))
                .isEmpty();
    }

    @Test
    void aPlanMustBeBelowTheBound() {
        node(1);
        hold("a", 1, share(0, 1000));
        PodGpuRequest request = Gpus.request("APP:main: gpumem=400");
        EvictionPlan plan = plan(request, candidates(), true, EvictionCost.MAX).orElseThrow();
        assertThat(plan(request, candidates(), true, plan.cost())).isEmpty();
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4})
    void noSetOfVictimsIsCheaper(long seed) {
        var random = new Random(seed);
        for (int round = 0; round < 250; round++) {
            randomNode(random);
            String container = "gpu=" + (random.nextInt(4) == 0 ? 2 : 1) + " gpumem=" + (50 + random.nextInt(950))
                    + " gpucores=" + random.nextInt(80);
            PodGpuRequest request = Gpus.request("APP:main: " + container);
            List<Victim> all = candidates();
            Optional<EvictionCost> cheapest = IntStream.range(0, 1 << all.size())
                    .mapToObj(set -> some(all, set))
                    .filter(some -> fits(request).test(uids(some)))
                    .map(EvictionCost::of)
                    .min(EvictionCost::compareTo);
            Optional<EvictionPlan> plan = plan(request, all, request.mostVgpus() == 1, EvictionCost.MAX);
            assertThat(plan.map(EvictionPlan::cost))
                    .as("seed %d round %d: %s among %s", seed, round, container, all)
                    .isEqualTo(cheapest);
            assertThat(plan.stream().allMatch(found -> fits(request).test(uids(found.victims()))))
                    .as("seed %d round %d", seed, round)
                    .isTrue();
        }
    }

    @Test
    void ifThereAreTooManyPodsForAFullSearchNoVictimIsUnnecessary() {
        node(4, 100);
        for (int i = 0; i < 4 * 60; i++) {
            hold("p" + i, i % 7, share(i % 4, 16));
        }
        PodGpuRequest request = Gpus.request("APP:main: gpu=3 gpumem=700");
        List<Victim> victims = plan(request, candidates(), false, EvictionCost.MAX)
                .orElseThrow()
                .victims();
        assertThat(fits(request).test(uids(victims))).isTrue();
        for (Victim victim : victims) {
            List<Victim> others = new ArrayList<>(victims);
            others.remove(victim);
            assertThat(fits(request).test(uids(others)))
                    .as("without %s", victim)
                    .isFalse();
        }
    }

    @Test
    void aSearchOnAThousandNodesTakesMilliseconds() {
        node(8);
        for (int i = 0; i < 80; i++) {
            hold("p" + i, i % 3, share(i % 8, 100));
        }
        PodGpuRequest request = Gpus.request("APP:main: gpumem=300");
        long tries = 0;
        EvictionCost bound = EvictionCost.MAX;
        var counted = new int[1];
        for (int node = 0; node < 1000; node++) {
            counted[0] = 0;
            EvictionCost below = bound;
            Optional<EvictionPlan> plan = VictimSearch.cheapest(
                    candidates(),
                    without -> {
                        counted[0]++;
                        return fits(request).test(without);
                    },
                    Set.of(),
                    true,
                    below);
            tries += counted[0];
            bound = plan.map(EvictionPlan::cost).orElse(below);
        }
        // One try takes microseconds. Only the first of equal nodes is searched; its cost is the bound for the others.
        assertThat(tries).isLessThan(30_000);
    }

    private void randomNode(Random random) {
        ledger.nodeNames()
                .forEach(name -> ledger.view(name).orElseThrow().holdings().forEach(holding -> {
                    ledger.observeEnded(holding.pod().uid());
                    budgets.removePod(holding.pod().uid());
                }));
        int gpus = 1 + random.nextInt(3);
        node(gpus);
        int pods = random.nextInt(9);
        for (int i = 0; i < pods; i++) {
            String kind = "APP:main: gpu=" + (gpus > 1 && random.nextInt(5) == 0 ? 2 : 1) + " gpumem="
                    + (50 + random.nextInt(600)) + " gpucores=" + random.nextInt(60);
            PodGpuRequest request = Gpus.request(kind);
            String name = "p" + i;
            if (ledger.commit(id(name), "n1", request, 1) instanceof Granted granted) {
                hold(
                        name,
                        random.nextInt(3),
                        new ContainerShare("main", ContainerKind.APP, Gpus.of(granted.containers(), "main")));
                if (random.nextInt(3) == 0) {
                    budgets.putPod(name, Map.of("app", "app" + random.nextInt(2)));
                }
            }
        }
        for (int app = 0; app < 2; app++) {
            budgets.putBudget(new Budget(
                    "default",
                    "app" + app,
                    LabelSelector.of(Map.of("app", "app" + app), List.of()),
                    random.nextInt(2),
                    Set.of()));
        }
    }

    private static List<Victim> some(List<Victim> all, int set) {
        return IntStream.range(0, all.size())
                .filter(i -> (set >> i & 1) == 1)
                .mapToObj(all::get)
                .toList();
    }

    private static Set<String> uids(List<Victim> victims) {
        var uids = new HashSet<String>();
        victims.forEach(victim -> uids.add(victim.pod().uid()));
        return uids;
    }

    private List<String> victims(String container, EvictionCost bound) {
        PodGpuRequest request = Gpus.request(container);
        return plan(request, candidates(), request.mostVgpus() == 1, bound).orElseThrow().victims().stream()
                .map(victim -> victim.pod().name())
                .toList();
    }

    private Optional<EvictionPlan> plan(
            PodGpuRequest request, List<Victim> candidates, boolean oneGpu, EvictionCost bound) {
        return VictimSearch.cheapest(candidates, fits(request), Set.of(), oneGpu, bound);
    }

    private Predicate<Set<String>> fits(PodGpuRequest request) {
        return without -> ledger.feasibilityWithout("n1", "preemptor", request, without) instanceof Feasibility.Fits;
    }

    private List<Victim> candidates() {
        return ledger.view("n1").orElseThrow().holdings().stream()
                .map(holding -> Victim.of(holding, budgets))
                .toList();
    }

    private void node(int gpus) {
        node(gpus, 10);
    }

    private void node(int gpus, int slots) {
        Gpu[] list =
                IntStream.range(0, gpus).mapToObj(i -> Gpus.gpu(1, i, MEMORY)).toArray(Gpu[]::new);
        ledger.putNode("n1", new NodeFacts.Sharing(Gpus.inventory(slots, list), Placement.BINPACK, HostResources.NONE));
    }

    private int second;

    private void hold(String name, int priority, ContainerShare... shares) {
        ledger.observeBound(BoundPods.of(id(name), "n1", priority, second++, HostResources.NONE, shares));
    }

    private void guard(int allowed, String... pods) {
        for (String pod : pods) {
            budgets.putPod(pod, Map.of("guarded", "yes"));
        }
        budgets.putBudget(new Budget(
                "default", "guard", LabelSelector.of(Map.of("guarded", "yes"), List.of()), allowed, Set.of()));
    }

    private static ContainerShare share(int gpu, int mebibytes) {
        return BoundPods.main(Gpus.uuid(1, gpu), new GpuAmount(mebibytes, 0, 1, false));
    }

    private static PodId id(String name) {
        return new PodId("default", name, name);
    }
}
