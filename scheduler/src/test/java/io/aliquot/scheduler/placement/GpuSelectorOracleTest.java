package io.aliquot.scheduler.placement;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.Link;
import io.aliquot.api.nodes.NodeSharing;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.api.pods.Numa;
import io.aliquot.scheduler.placement.Feasibility.Fits;
import io.aliquot.scheduler.placement.Feasibility.Refused;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/**
 * Compares the selection with an oracle on random small nodes. The oracle lists every assignment of vGPUs to GPUs and
 * knows the rules only.
 */
class GpuSelectorOracleTest {
    private static final int CASES = 3000;
    private static final List<Link> LINKS = List.of(
            new Link(Link.Kind.NVLINK, 4),
            new Link(Link.Kind.NVLINK, 12),
            new Link(Link.Kind.PIX, 0),
            new Link(Link.Kind.PHB, 0),
            new Link(Link.Kind.SYS, 0));

    /** A node and a pod. */
    record Case(int seed, PodGpuRequest pod, List<GpuInfo> gpus, boolean topologyNode, PlacementPolicy policy) {}

    @Test
    void aPodFitsIfAndOnlyIfAValidAssignmentExists() {
        int fit = 0;
        for (int seed = 0; seed < CASES; seed++) {
            Case one = random(seed);
            List<Map<ContainerGpuRequest, Set<Integer>>> assignments = assignments(one);
            GpuSelection selection = GpuSelector.select(one.pod, one.gpus, one.policy);
            Feasibility quickCheck = GpuSelector.feasible(one.pod, one.gpus, one.policy);

            assertThat(selection instanceof GpuSelection.Selected)
                    .as("seed %d: %s among %s is %s", seed, one.pod, one.gpus, selection)
                    .isEqualTo(!assignments.isEmpty());
            assertThat(quickCheck instanceof Fits).as("seed %d", seed).isEqualTo(!assignments.isEmpty());
            if (selection instanceof GpuSelection.Selected selected) {
                fit++;
                assertThat(assignments).as("seed %d", seed).contains(positions(one, selected));
                assertThat(((Fits) quickCheck).fullness()).as("seed %d", seed).isBetween(0.0, fullest(one));
            } else {
                assertThat(quickCheck).as("seed %d", seed).isEqualTo(selection);
            }
        }
        assertThat(fit).isBetween(CASES / 5, CASES * 4 / 5);
    }

    @Test
    void aPodWithAnUnresolvableRefusalDoesNotFitOnEmptyGpusEither() {
        int unresolvable = 0;
        for (int seed = 0; seed < CASES; seed++) {
            Case one = random(seed);
            if (GpuSelector.select(one.pod, one.gpus, one.policy) instanceof Refused refused
                    && refused.unresolvable()) {
                unresolvable++;
                List<GpuInfo> empty = one.gpus.stream()
                        .map(gpu -> new GpuInfo(gpu.capacity(), GpuAmount.NOTHING))
                        .toList();
                assertThat(assignments(new Case(seed, one.pod, empty, one.topologyNode, one.policy)))
                        .as("seed %d: %s", seed, refused.reason())
                        .isEmpty();
            }
        }
        assertThat(unresolvable).isGreaterThan(CASES / 20);
    }

    @Test
    void thePodsOnlyContainerGetsTheBestSetUnderNumaPolicyAndLinks() {
        int several = 0;
        for (int seed = 0; seed < CASES; seed++) {
            Case one = random(seed);
            if (one.pod.containers().size() == 1
                    && GpuSelector.select(one.pod, one.gpus, one.policy) instanceof GpuSelection.Selected selected) {
                Comparator<Set<Integer>> better = better(one);
                Set<Integer> got = positions(one, selected)
                        .getOrDefault(one.pod.containers().get(0), Set.of());
                Set<Integer> best = assignments(one).stream()
                        .map(assignment ->
                                assignment.getOrDefault(one.pod.containers().get(0), Set.of()))
                        .max(better)
                        .orElseThrow();
                assertThat(better.compare(got, best))
                        .as("seed %d: %s beside %s among %s", seed, got, best, one.gpus)
                        .isZero();
                several += got.size() > 1 ? 1 : 0;
            }
        }
        assertThat(several).isGreaterThan(CASES / 20);
    }

    @Test
    void theSearchUsesATenthOfItsBudgetAtMost() {
        int most = 0;
        for (int seed = 0; seed < CASES; seed++) {
            Case one = random(seed);
            var selector = new PodGpuSelector(one.pod, one.gpus, one.policy, false);
            selector.select();
            most = Math.max(most, selector.attempts());
        }
        assertThat(most).isBetween(10, PodGpuSelector.BUDGET / 10);
    }

    /** The fullness of the fullest GPU, at least 1; above 1 only if pods hold more of a GPU than is allocatable. */
    private static double fullest(Case one) {
        return one.gpus.stream()
                .mapToDouble(gpu -> (double) gpu.fullness / GpuInfo.FULL)
                .reduce(1, Math::max);
    }

    // The rules.

    /** All valid assignments of GPUs to containers. */
    private static List<Map<ContainerGpuRequest, Set<Integer>>> assignments(Case one) {
        List<Map<ContainerGpuRequest, Set<Integer>>> assignments = List.of(Map.of());
        for (ContainerGpuRequest container : one.pod.containers()) {
            List<Map<ContainerGpuRequest, Set<Integer>>> extended = new ArrayList<>();
            for (var assignment : assignments) {
                for (int bits = 0; bits < 1 << one.gpus.size(); bits++) {
                    if (Integer.bitCount(bits) == container.request().vgpus()) {
                        Map<ContainerGpuRequest, Set<Integer>> with = new LinkedHashMap<>(assignment);
                        with.put(container, members(bits));
                        if (allowed(one, with)) {
                            extended.add(with);
                        }
                    }
                }
            }
            assignments = extended;
        }
        return assignments;
    }

    private static Set<Integer> members(int bits) {
        Set<Integer> members = new HashSet<>();
        for (int i = 0; i < 32; i++) {
            if ((bits >> i & 1) == 1) {
                members.add(i);
            }
        }
        return members;
    }

    private static boolean allowed(Case one, Map<ContainerGpuRequest, Set<Integer>> assignment) {
        for (int i = 0; i < one.gpus.size(); i++) {
            GpuInfo free = one.gpus.get(i);
            Gpu gpu = free.gpu();
            SharingMode sharingMode = free.capacity().sharingMode();
            List<GpuAmount.Timed> here = new ArrayList<>();
            for (ContainerGpuRequest container : one.pod.containers()) {
                if (assignment.getOrDefault(container, Set.of()).contains(i)) {
                    var request = container.request();
                    long allocatable = Math.min(gpu.memoryMiB(), free.capacity().memoryMiB());
                    int memory = request.memory().on((int) allocatable);
                    if (!gpu.healthy()
                            || free.capacity().cordoned()
                            || !one.pod.takes(gpu)
                            || memory > gpu.memoryMiB()
                            || (sharingMode == SharingMode.EXCLUSIVE && !request.exclusive())) {
                        return false;
                    }
                    int cores = sharingMode == SharingMode.MEMORY ? 0 : request.cores();
                    here.add(new GpuAmount.Timed(
                            container.kind(), new GpuAmount(memory, cores, 1, request.exclusive())));
                }
            }
            if (!here.isEmpty()) {
                GpuAmount requested = GpuAmount.peak(here);
                GpuAmount allocated = free.allocated();
                if (requested.memoryMiB() + allocated.memoryMiB()
                                > free.capacity().memoryMiB()
                        || requested.cores() + allocated.cores()
                                > free.capacity().cores()
                        || requested.slots() + allocated.slots()
                                > free.capacity().slots()
                        || allocated.exclusive()
                        || (requested.exclusive() && allocated.slots() > 0)) {
                    return false;
                }
            }
        }
        return !one.pod.numa().equals(Optional.of(Numa.REQUIRED))
                || assignment.values().stream().allMatch(set -> set.size() == 1 || inOneDomain(one, set));
    }

    private static boolean inOneDomain(Case one, Set<Integer> set) {
        Set<Integer> domains = new HashSet<>();
        set.forEach(i -> domains.add(one.gpus.get(i).gpu().numa()));
        return domains.size() == 1 && !domains.contains(-1);
    }

    private static Comparator<Set<Integer>> better(Case one) {
        Comparator<Set<Integer>> numa =
                Comparator.comparing(set -> set.size() == 1 || one.pod.numa().isEmpty() || inOneDomain(one, set));
        Comparator<Set<Integer>> links = Comparator.comparing(set -> links(one, set));
        Comparator<Set<Integer>> fullness = Comparator.comparing(
                set -> set.stream().mapToLong(i -> one.gpus.get(i).fullness).sum());
        Comparator<Set<Integer>> small = Comparator.comparing(set ->
                -set.stream().mapToLong(i -> one.gpus.get(i).gpu().memoryMiB()).sum());
        boolean topology = one.pod.topology() || one.topologyNode;
        Comparator<Set<Integer>> policy = one.policy == PlacementPolicy.SPREAD ? fullness.reversed() : fullness;
        if (topology && one.pod.mostVgpus() > 1 && links(one, members((1 << one.gpus.size()) - 1)) > 0) {
            return numa.thenComparing(links).thenComparing(policy);
        }
        Comparator<Set<Integer>> whole = one.policy == PlacementPolicy.SPREAD ? policy : policy.thenComparing(small);
        return numa.thenComparing(whole).thenComparing(links);
    }

    private static long links(Case one, Set<Integer> set) {
        long sum = 0;
        for (int i : set) {
            for (int j : set) {
                Link link =
                        one.gpus.get(i).gpu().links().get(one.gpus.get(j).gpu().uuid());
                if (i < j && link != null) {
                    sum += switch (link.kind()) {
                        case NVLINK -> 100L * link.lanes();
                        case PIX -> 50;
                        case PXB -> 40;
                        case PHB -> 30;
                        case NODE -> 20;
                        case SYS -> 10;
                    };
                }
            }
        }
        return sum;
    }

    private static Map<ContainerGpuRequest, Set<Integer>> positions(Case one, GpuSelection.Selected selected) {
        Map<ContainerGpuRequest, Set<Integer>> positions = new HashMap<>();
        for (ContainerGpuRequest container : one.pod.containers()) {
            Set<Integer> set = new HashSet<>();
            for (String uuid : Gpus.of(selected.containers(), container.name()).uuids()) {
                for (int i = 0; i < one.gpus.size(); i++) {
                    if (one.gpus.get(i).gpu().uuid().equals(uuid)) {
                        set.add(i);
                    }
                }
            }
            positions.put(container, set);
        }
        return positions;
    }

    // The cases.

    static Case random(int seed) {
        var random = new Random(seed);
        int gpus = 1 + random.nextInt(4);
        boolean linked = random.nextInt(3) > 0;
        List<Map<String, Link>> links = IntStream.range(0, gpus)
                .mapToObj(i -> (Map<String, Link>) new HashMap<String, Link>())
                .toList();
        for (int i = 0; i < gpus && linked; i++) {
            for (int j = 0; j < i; j++) {
                Link link = LINKS.get(random.nextInt(LINKS.size()));
                links.get(i).put(Gpus.uuid(1, j), link);
                links.get(j).put(Gpus.uuid(1, i), link);
            }
        }
        boolean mixed = random.nextInt(4) == 0;
        boolean numa = random.nextInt(5) > 0;
        List<Gpu> list = IntStream.range(0, gpus)
                .mapToObj(i -> new Gpu(
                        Gpus.uuid(1, i),
                        i,
                        mixed && random.nextBoolean() ? "NVIDIA L4" : "NVIDIA A100-SXM4-80GB",
                        mixed && random.nextBoolean() ? 60 : 100,
                        0,
                        numa ? random.nextInt(2) : -1,
                        Gpus.health(random.nextInt(12) > 0),
                        Gpu.SHIM,
                        links.get(i)))
                .toList();
        var inventory = new Inventory(
                new VisibleDevices("{uuid}"),
                new Scaling(pick(random, 100, 100, 100, 150, 50)),
                new Scaling(pick(random, 100, 100, 100, 200)),
                pick(random, 10, 10, 3),
                list);
        SharingMode sharingMode = pick(
                random,
                SharingMode.CORE_MEMORY,
                SharingMode.CORE_MEMORY,
                SharingMode.TOPOLOGY,
                SharingMode.MEMORY,
                SharingMode.EXCLUSIVE);
        Set<String> cordoned = random.nextInt(6) == 0 ? Set.of(Gpus.uuid(1, random.nextInt(gpus))) : Set.of();
        List<GpuInfo> free = new NodeGpus(inventory, new NodeSharing(sharingMode, exceptions(random, gpus)), cordoned)
                .list().stream()
                        .map(capacity -> new GpuInfo(capacity, allocated(random)))
                        .toList();
        return new Case(
                seed,
                request(random),
                free,
                sharingMode == SharingMode.TOPOLOGY,
                pick(random, PlacementPolicy.BINPACK, PlacementPolicy.SPREAD));
    }

    private static Map<String, NodeSharing.OfGpu> exceptions(Random random, int gpus) {
        var exceptions = new HashMap<String, NodeSharing.OfGpu>();
        for (int gpu = 0; gpu < gpus; gpu++) {
            if (random.nextInt(6) == 0) {
                exceptions.put(
                        String.valueOf(gpu),
                        new NodeSharing.OfGpu(
                                pick(random, SharingMode.CORE_MEMORY, SharingMode.MEMORY, SharingMode.EXCLUSIVE),
                                pick(random, 10, 1, 2)));
            }
        }
        return exceptions;
    }

    private static GpuAmount allocated(Random random) {
        return switch (random.nextInt(6)) {
            case 0 -> new GpuAmount(100, 0, 1, true);
            case 1, 2 -> new GpuAmount(10L * random.nextInt(8), 20 * random.nextInt(5), 1 + random.nextInt(2), false);
            default -> GpuAmount.NOTHING;
        };
    }

    private static PodGpuRequest request(Random random) {
        var annotations = new HashMap<String, String>();
        if (random.nextInt(3) == 0) {
            annotations.put(Annotations.NUMA, pick(random, "required", "required", "preferred"));
        }
        if (random.nextInt(8) == 0) {
            annotations.put(pick(random, Annotations.USE_GPU_MODEL, Annotations.AVOID_GPU_MODEL), "a100");
        }
        if (random.nextInt(8) == 0) {
            annotations.put(
                    pick(random, Annotations.USE_GPU_UUID, Annotations.AVOID_GPU_UUID),
                    Gpus.uuid(1, 0) + "," + Gpus.uuid(1, 1));
        }
        if (random.nextInt(6) == 0) {
            annotations.put(Annotations.GPU_PLACEMENT, "topology");
        }
        int containers = pick(random, 1, 1, 1, 2, 3);
        String[] texts = new String[containers];
        for (int i = 0; i < containers; i++) {
            ContainerKind kind = i < containers - 1 && random.nextInt(3) == 0
                    ? pick(random, ContainerKind.INIT, ContainerKind.SIDECAR)
                    : ContainerKind.APP;
            String vgpus = "gpu=" + pick(random, 1, 1, 2, 2, 3);
            texts[i] = kind + ":c" + i + ": " + vgpus
                    + switch (random.nextInt(6)) {
                        case 0 -> "";
                        case 1 -> " gpumem-percentage=" + pick(random, 30, 50, 100);
                        case 2 -> " gpucores=" + pick(random, 20, 60, 100) + " gpumem=" + pick(random, 5, 40);
                        default -> " gpumem=" + 10 * (1 + random.nextInt(10));
                    };
        }
        return Gpus.request(annotations, texts);
    }

    @SafeVarargs
    private static <T> T pick(Random random, T... from) {
        return from[random.nextInt(from.length)];
    }
}
