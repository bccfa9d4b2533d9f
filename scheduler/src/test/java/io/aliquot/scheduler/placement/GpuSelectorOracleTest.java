package io.aliquot.scheduler.placement;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Annotations;
import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.api.Link;
import io.aliquot.api.Numa;
import io.aliquot.api.Placement;
import io.aliquot.api.Scaling;
import io.aliquot.api.SharingMode;
import io.aliquot.api.VisibleDevices;
import io.aliquot.scheduler.placement.GpuSelection.Fits;
import io.aliquot.scheduler.placement.GpuSelection.Refused;
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
 * The chooser beside an oracle that tries every GPU for every vGPU and knows nothing but the rules, on small nodes of
 * every kind.
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
    record Case(int seed, PodGpuRequest ask, List<GpuFreeCapacity> rooms, Placement policy) {}

    @Test
    void aPodFitsIfAndOnlyIfThereIsAWay() {
        int fit = 0;
        for (int seed = 0; seed < CASES; seed++) {
            Case one = random(seed);
            List<Map<ContainerGpuRequest, Set<Integer>>> ways = ways(one);
            GpuSelection choice = GpuSelector.select(one.ask, one.rooms, one.policy);
            GpuSelection.Glance glance = GpuSelector.feasible(one.ask, one.rooms, one.policy);

            assertThat(choice instanceof GpuSelection.Selected)
                    .as("seed %d: %s among %s is %s", seed, one.ask, one.rooms, choice)
                    .isEqualTo(!ways.isEmpty());
            assertThat(glance instanceof Fits).as("seed %d", seed).isEqualTo(!ways.isEmpty());
            if (choice instanceof GpuSelection.Selected chosen) {
                fit++;
                assertThat(ways).as("seed %d", seed).contains(places(one, chosen));
                assertThat(((Fits) glance).fullness()).as("seed %d", seed).isBetween(0.0, fullest(one));
            } else {
                assertThat(glance).as("seed %d", seed).isEqualTo(choice);
            }
        }
        assertThat(fit).isBetween(CASES / 5, CASES * 4 / 5);
    }

    @Test
    void whatIsCalledHopelessWouldNotFitOnEmptyGpusEither() {
        int hopeless = 0;
        for (int seed = 0; seed < CASES; seed++) {
            Case one = random(seed);
            if (GpuSelector.select(one.ask, one.rooms, one.policy) instanceof Refused refused && refused.hopeless()) {
                hopeless++;
                List<GpuFreeCapacity> empty = one.rooms.stream()
                        .map(room -> new GpuFreeCapacity(room.card(), GpuAmount.NOTHING))
                        .toList();
                assertThat(ways(new Case(seed, one.ask, empty, one.policy)))
                        .as("seed %d: %s", seed, refused.reason())
                        .isEmpty();
            }
        }
        assertThat(hopeless).isGreaterThan(CASES / 20);
    }

    @Test
    void theOnlyContainerOfAPodGetsTheSetThatItsNodeAndItsWishesPutFirst() {
        int several = 0;
        for (int seed = 0; seed < CASES; seed++) {
            Case one = random(seed);
            if (one.ask.containers().size() == 1
                    && GpuSelector.select(one.ask, one.rooms, one.policy) instanceof GpuSelection.Selected chosen) {
                Comparator<Set<Integer>> better = better(one);
                Set<Integer> got =
                        places(one, chosen).getOrDefault(one.ask.containers().get(0), Set.of());
                Set<Integer> best = ways(one).stream()
                        .map(way -> way.getOrDefault(one.ask.containers().get(0), Set.of()))
                        .max(better)
                        .orElseThrow();
                assertThat(better.compare(got, best))
                        .as("seed %d: %s beside %s among %s", seed, got, best, one.rooms)
                        .isZero();
                several += got.size() > 1 ? 1 : 0;
            }
        }
        assertThat(several).isGreaterThan(CASES / 20);
    }

    @Test
    void theSearchEndsLongBeforeItsBudget() {
        int most = 0;
        for (int seed = 0; seed < CASES; seed++) {
            Case one = random(seed);
            var search = new PodGpuSelector(one.ask, one.rooms, one.policy, false);
            search.selection();
            most = Math.max(most, search.tries());
        }
        assertThat(most).isBetween(10, PodGpuSelector.BUDGET / 10);
    }

    /** More than 1 only where others hold more of a GPU than is sold now. */
    private static double fullest(Case one) {
        return one.rooms.stream()
                .mapToDouble(room -> (double) room.fullness / GpuFreeCapacity.FULL)
                .reduce(1, Math::max);
    }

    // The rules.

    /** All ways to give each container its GPUs. */
    private static List<Map<ContainerGpuRequest, Set<Integer>>> ways(Case one) {
        List<Map<ContainerGpuRequest, Set<Integer>>> ways = List.of(Map.of());
        for (ContainerGpuRequest container : one.ask.containers()) {
            List<Map<ContainerGpuRequest, Set<Integer>>> longer = new ArrayList<>();
            for (var way : ways) {
                for (int bits = 0; bits < 1 << one.rooms.size(); bits++) {
                    if (Integer.bitCount(bits) == container.request().vgpus()) {
                        Map<ContainerGpuRequest, Set<Integer>> with = new LinkedHashMap<>(way);
                        with.put(container, members(bits));
                        if (allowed(one, with)) {
                            longer.add(with);
                        }
                    }
                }
            }
            ways = longer;
        }
        return ways;
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

    private static boolean allowed(Case one, Map<ContainerGpuRequest, Set<Integer>> way) {
        for (int i = 0; i < one.rooms.size(); i++) {
            GpuFreeCapacity room = one.rooms.get(i);
            Gpu gpu = room.gpu();
            SharingMode share = room.card().share();
            List<GpuAmount.Timed> here = new ArrayList<>();
            for (ContainerGpuRequest container : one.ask.containers()) {
                if (way.getOrDefault(container, Set.of()).contains(i)) {
                    var request = container.request();
                    long sold = Math.min(gpu.memoryMiB(), room.card().memoryMiB());
                    int memory = request.memory().on((int) sold);
                    if (!gpu.healthy()
                            || room.card().cordoned()
                            || !one.ask.takes(gpu)
                            || memory > gpu.memoryMiB()
                            || (share == SharingMode.EXCLUSIVE && !request.exclusive())) {
                        return false;
                    }
                    int cores = share == SharingMode.MEMORY ? 0 : request.cores();
                    here.add(new GpuAmount.Timed(
                            container.kind(), new GpuAmount(memory, cores, 1, request.exclusive())));
                }
            }
            if (!here.isEmpty()) {
                GpuAmount ours = GpuAmount.peak(here);
                GpuAmount theirs = room.taken();
                if (ours.memoryMiB() + theirs.memoryMiB() > room.card().memoryMiB()
                        || ours.cores() + theirs.cores() > room.card().cores()
                        || ours.slots() + theirs.slots() > room.card().slots()
                        || theirs.exclusive()
                        || (ours.exclusive() && theirs.slots() > 0)) {
                    return false;
                }
            }
        }
        return !one.ask.numa().equals(Optional.of(Numa.REQUIRED))
                || way.values().stream().allMatch(set -> set.size() == 1 || ofOneDomain(one, set));
    }

    private static boolean ofOneDomain(Case one, Set<Integer> set) {
        Set<Integer> domains = new HashSet<>();
        set.forEach(i -> domains.add(one.rooms.get(i).gpu().numa()));
        return domains.size() == 1 && !domains.contains(-1);
    }

    private static Comparator<Set<Integer>> better(Case one) {
        Comparator<Set<Integer>> numa =
                Comparator.comparing(set -> set.size() == 1 || one.ask.numa().isEmpty() || ofOneDomain(one, set));
        Comparator<Set<Integer>> links = Comparator.comparing(set -> links(one, set));
        Comparator<Set<Integer>> fullness = Comparator.comparing(
                set -> set.stream().mapToLong(i -> one.rooms.get(i).fullness).sum());
        Comparator<Set<Integer>> small = Comparator.comparing(set ->
                -set.stream().mapToLong(i -> one.rooms.get(i).gpu().memoryMiB()).sum());
        boolean topology = one.ask.topology()
                || one.rooms.stream().allMatch(room -> room.card().share() == SharingMode.TOPOLOGY);
        Comparator<Set<Integer>> policy = one.policy == Placement.SPREAD ? fullness.reversed() : fullness;
        if (topology && one.ask.mostVgpus() > 1 && links(one, members((1 << one.rooms.size()) - 1)) > 0) {
            return numa.thenComparing(links).thenComparing(policy);
        }
        Comparator<Set<Integer>> whole = one.policy == Placement.SPREAD ? policy : policy.thenComparing(small);
        return numa.thenComparing(whole).thenComparing(links);
    }

    private static long links(Case one, Set<Integer> set) {
        long sum = 0;
        for (int i : set) {
            for (int j : set) {
                Link link = one.rooms
                        .get(i)
                        .gpu()
                        .links()
                        .get(one.rooms.get(j).gpu().uuid());
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

    private static Map<ContainerGpuRequest, Set<Integer>> places(Case one, GpuSelection.Selected chosen) {
        Map<ContainerGpuRequest, Set<Integer>> places = new HashMap<>();
        for (ContainerGpuRequest container : one.ask.containers()) {
            Set<Integer> set = new HashSet<>();
            for (String uuid : Gpus.of(chosen.containers(), container.name()).uuids()) {
                for (int i = 0; i < one.rooms.size(); i++) {
                    if (one.rooms.get(i).gpu().uuid().equals(uuid)) {
                        set.add(i);
                    }
                }
            }
            places.put(container, set);
        }
        return places;
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
                        random.nextInt(12) > 0,
                        Gpu.SHIM,
                        links.get(i)))
                .toList();
        var inventory = new Inventory(
                new VisibleDevices("{uuid}"),
                new Scaling(pick(random, 100, 100, 100, 150, 50)),
                new Scaling(pick(random, 100, 100, 100, 200)),
                pick(random, 10, 10, 3),
                list);
        SharingMode share = pick(
                random,
                SharingMode.CORE_MEMORY,
                SharingMode.CORE_MEMORY,
                SharingMode.TOPOLOGY,
                SharingMode.MEMORY,
                SharingMode.EXCLUSIVE);
        Set<String> cordoned = random.nextInt(6) == 0 ? Set.of(Gpus.uuid(1, random.nextInt(gpus))) : Set.of();
        List<GpuFreeCapacity> rooms = new NodeGpus(inventory, share, cordoned)
                .list().stream()
                        .map(card -> new GpuFreeCapacity(card, taken(random)))
                        .toList();
        return new Case(seed, ask(random), rooms, pick(random, Placement.BINPACK, Placement.SPREAD));
    }

    private static GpuAmount taken(Random random) {
        return switch (random.nextInt(6)) {
            case 0 -> new GpuAmount(100, 0, 1, true);
            case 1, 2 -> new GpuAmount(10L * random.nextInt(8), 20 * random.nextInt(5), 1 + random.nextInt(2), false);
            default -> GpuAmount.NOTHING;
        };
    }

    private static PodGpuRequest ask(Random random) {
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
        return Gpus.ask(annotations, texts);
    }

    @SafeVarargs
    private static <T> T pick(Random random, T... from) {
        return from[random.nextInt(from.length)];
    }
}
