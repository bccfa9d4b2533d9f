package io.aliquot.scheduler.placement;

import static io.aliquot.scheduler.placement.Gpus.empty;
import static io.aliquot.scheduler.placement.Gpus.gpu;
import static io.aliquot.scheduler.placement.Gpus.gpuWith;
import static io.aliquot.scheduler.placement.Gpus.request;
import static io.aliquot.scheduler.placement.PlacementPolicy.BINPACK;
import static io.aliquot.scheduler.placement.PlacementPolicy.SPREAD;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.aliquot.api.nodes.ForeignHolder;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.NodeSharing;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.scheduler.placement.Feasibility.Fits;
import io.aliquot.scheduler.placement.Feasibility.Refused;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class GpuSelectorTest {
    private static final Map<String, String> NUMA_REQUIRED = Map.of("aliquot.io/numa", "required");

    /** 70+50, 60+60 and 50+50 fill GPUs of 120, 120 and 100 MiB completely. */
    private static final String[] FILL_THREE_GPUS = {
        "APP:a: gpumem=70",
        "APP:b: gpumem=60",
        "APP:c: gpumem=60",
        "APP:d: gpumem=50",
        "APP:e: gpumem=50",
        "APP:f: gpumem=50"
    };

    private final List<GpuInfo> twoPartlyAllocated =
            List.of(gpuWith(gpu(1, 0, 80000), 10, 20000, 0, 2), gpuWith(gpu(1, 1, 80000), 10, 30000, 0, 3));

    @Test
    void binpackSelectsTheFullestGpuThatHoldsTheVgpu() {
        assertThat(selectedFor("APP:main: gpumem=50000", twoPartlyAllocated, BINPACK))
                .containsExactly(Gpus.uuid(1, 1));
        assertThat(selectedFor("APP:main: gpumem=50001", twoPartlyAllocated, BINPACK))
                .containsExactly(Gpus.uuid(1, 0));
    }

    @Test
    void spreadSelectsTheEmptiestGpu() {
        assertThat(selectedFor("APP:main: gpumem=1000", twoPartlyAllocated, SPREAD))
                .containsExactly(Gpus.uuid(1, 0));
    }

    /** With the pod they hold 30 % and 20 % of the memory, 40 % and 60 % of the cores. */
    @Test
    void fullnessIsOfMemoryAndCoresAndOfMemoryAloneWhereCoresAreNotShared() {
        for (SharingMode mode : List.of(SharingMode.CORE_MEMORY, SharingMode.MEMORY)) {
            List<GpuCapacity> node =
                    new NodeGpus(Gpus.inventory(10, gpu(1, 0, 100), gpu(1, 1, 100)), mode, Set.of()).list();
            List<GpuInfo> gpus = List.of(
                    new GpuInfo(node.get(0), new GpuAmount(20, 30, 1, false)),
                    new GpuInfo(node.get(1), new GpuAmount(10, 50, 1, false)));
            var selection = (GpuSelection.Selected)
                    GpuSelector.select(request("APP:main: gpu=2 gpumem=10 gpucores=10"), gpus, BINPACK);
            assertThat(selection.fullness()).isCloseTo(mode == SharingMode.MEMORY ? 0.25 : 0.375, within(1e-5));
            assertThat(selectedFor("APP:main: gpumem=10", gpus, BINPACK))
                    .containsExactly(Gpus.uuid(1, mode == SharingMode.MEMORY ? 0 : 1));
        }
    }

    @Test
    void aGpuHeldAsAWholeCardStaysSoUntilItsLastVgpuIsGivenBack() {
        GpuInfo gpu = gpuWith(gpu(1, 0, 100), 10, 20, 5, 1).with(new GpuAmount(80, 10, 1, true));
        assertThat(gpu.allocated()).isEqualTo(new GpuAmount(100, 15, 2, true));
        GpuInfo less = gpu.without(new GpuAmount(80, 10, 1, true));
        assertThat(less.allocated()).isEqualTo(new GpuAmount(20, 5, 1, true));
        assertThat(less.without(new GpuAmount(20, 5, 1, false)).allocated()).isEqualTo(GpuAmount.NOTHING);
        assertThat(gpuWith(gpu(1, 0, 100), 10, 20, 5, 2)
                        .without(new GpuAmount(20, 5, 1, false))
                        .allocated())
                .isEqualTo(new GpuAmount(0, 0, 1, false));
        assertThat(empty(gpu(1, 0, 100)).with(new GpuAmount(20, 5, 1, false)).allocated())
                .isEqualTo(new GpuAmount(20, 5, 1, false));
    }

    @Test
    void binpackSelectsTheSmallerOfTwoEmptyGpus() {
        var gpus = List.of(empty(gpu(1, 0, 80000)), empty(gpu(1, 1, 40000)));
        assertThat(selectedFor("APP:main: gpumem=1000", gpus, BINPACK)).containsExactly(Gpus.uuid(1, 1));
    }

    @Test
    void severalVgpusOfAContainerAreOnDifferentGpus() {
        assertThat(selectedFor("APP:main: gpu=2 gpumem=1000", empty(4, 80000), BINPACK))
                .doesNotHaveDuplicates()
                .hasSize(2);
    }

    @Test
    void aWholeCardIsNotSharedWithEarlierOrLaterPods() {
        assertThat(reason("APP:main: gpu=1", List.of(gpuWith(gpu(1, 0, 80000), 10, 1, 0, 1))))
                .isEqualTo("no GPU wholly free");
        var exclusivelyHeld =
                new GpuInfo(Gpus.nodeGpus(10, gpu(1, 0, 80000)).list().get(0), new GpuAmount(80000, 0, 1, true));
        assertThat(reason("APP:main: gpumem=1", List.of(exclusivelyHeld))).isEqualTo("no GPU with 1 MiB free");
    }

    @Test
    void aWholeCardIsRecordedAsExclusive() {
        var selected = (GpuSelection.Selected) GpuSelector.select(request("APP:main: gpu=1"), empty(1, 80000), BINPACK);
        assertThat(Gpus.of(selected.containers(), "main").print())
                .isEqualTo(Gpus.uuid(1, 0) + " memory=80000Mi cores=0 policy=fixed context=0Mi exclusive\n");
    }

    @Test
    void aPercentageRefersToTheMemoryOfTheSelectedGpu() {
        var selected = (GpuSelection.Selected)
                GpuSelector.select(request("APP:main: gpumem-percentage=50"), empty(1, 81920), BINPACK);
        assertThat(Gpus.of(selected.containers(), "main").list().get(0).memoryMiB())
                .isEqualTo(40960);
    }

    @Test
    void wholeCardsAndPercentagesReferToTheAllocatableMemoryOfAScaledGpu() {
        assertThat(memory("APP:main: gpu=1", 90, SharingMode.EXCLUSIVE)).isEqualTo(72000);
        assertThat(memory("APP:main: gpu=1", 90, SharingMode.CORE_MEMORY)).isEqualTo(72000);
        assertThat(memory("APP:main: gpucores=30", 90, SharingMode.CORE_MEMORY)).isEqualTo(72000);
        assertThat(memory("APP:main: gpumem-percentage=100", 90, SharingMode.CORE_MEMORY))
                .isEqualTo(72000);
        assertThat(memory("APP:main: gpumem-percentage=50", 90, SharingMode.CORE_MEMORY))
                .isEqualTo(36000);
        assertThat(reason("APP:main: gpumem=72001", List.of(scaled(90, SharingMode.CORE_MEMORY))))
                .isEqualTo("no GPU that large: 72001 MiB");
        for (String all : List.of("gpu=1", "gpumem-percentage=100")) {
            assertThat(memory("APP:main: " + all, 150, SharingMode.CORE_MEMORY))
                    .as("a vGPU has at most the memory of the GPU")
                    .isEqualTo(80000);
        }
    }

    private static int memory(String container, int scaling, SharingMode sharingMode) {
        var selected = (GpuSelection.Selected)
                GpuSelector.select(request(container), List.of(scaled(scaling, sharingMode)), BINPACK);
        return Gpus.of(selected.containers(), "main").list().get(0).memoryMiB();
    }

    private static GpuInfo scaled(int hundredths, SharingMode sharingMode) {
        var inventory = new Inventory(
                new VisibleDevices("{uuid}"), new Scaling(hundredths), Scaling.ONE, 10, List.of(gpu(1, 0, 80000)));
        return new GpuInfo(new NodeGpus(inventory, sharingMode, Set.of()).list().get(0), GpuAmount.NOTHING);
    }

    @Test
    void aRefusalNamesTheMissingResource() {
        assertThat(reason("APP:main: gpumem=3000", List.of(gpuWith(gpu(1, 0, 80000), 10, 77001, 0, 1))))
                .isEqualTo("no GPU with 3000 MiB free");
        assertThat(reason("APP:main: gpumem=3000 gpucores=30", List.of(gpuWith(gpu(1, 0, 80000), 10, 0, 71, 1))))
                .isEqualTo("no GPU with 3000 MiB and 30 percent of its cores free");
        assertThat(reason("APP:main: gpumem=3000 gpucores=30", List.of(gpuWith(gpu(1, 0, 80000), 10, 77000, 71, 1))))
                .isEqualTo("no GPU with 3000 MiB and 30 percent of its cores free");
        assertThat(reason("APP:main: gpumem=3000 gpucores=30", List.of(gpuWith(gpu(1, 0, 80000), 10, 0, 70, 10))))
                .isEqualTo("no GPU with 3000 MiB and a slot free");
        assertThat(reason("APP:main: gpumem=3000", List.of(gpuWith(gpu(1, 0, 80000), 10, 0, 0, 10))))
                .isEqualTo("no GPU with 3000 MiB and a slot free");
        assertThat(reason("APP:main: gpu=3 gpumem=3000", empty(2, 80000)))
                .isEqualTo("requests 3 vGPUs, the node has fewer GPUs");
        assertThat(reason("APP:main: gpumem=90000", empty(2, 80000))).isEqualTo("no GPU that large: 90000 MiB");
        assertThat(reason("APP:main: gpu=2 gpumem-percentage=60", ONE_OF_TWO_HALF_ALLOCATED))
                .isEqualTo("fewer than 2 GPUs with 60 percent of its memory free");
        assertThat(reason("APP:main: gpucores=20", List.of(gpuWith(gpu(1, 0, 80000), 10, 1, 0, 1))))
                .isEqualTo("no GPU with all its memory free");
        assertThat(reason("APP:main: gpumem=1", List.of(empty(gpu(1, 0, 80000, false)))))
                .isEqualTo("no GPU healthy");
        var holder = new ForeignHolder("team/train", "nvidia.com/gpu");
        assertThat(reason("APP:main: gpumem=1", List.of(empty(gpu(1, 0, 80000).withHolders(List.of(holder))))))
                .isEqualTo("no GPU that no pod of another device plugin holds");
    }

    private static final List<GpuInfo> ONE_OF_TWO_HALF_ALLOCATED =
            List.of(gpuWith(gpu(1, 0, 80000), 10, 40000, 0, 1), gpuWith(gpu(1, 1, 80000), 10, 0, 0, 0));

    @Test
    void aRefusalIsUnresolvableOnlyIfEmptyGpusWouldNotFitThePod() {
        assertThat(((Refused) GpuSelector.select(request("APP:main: gpumem=90000"), empty(1, 80000), BINPACK))
                        .unresolvable())
                .isTrue();
        assertThat(((Refused) GpuSelector.select(
                                request("APP:main: gpumem=60000 gpu=2"), ONE_OF_TWO_HALF_ALLOCATED, BINPACK))
                        .unresolvable())
                .isFalse();
        assertThat(refused(request("APP:main: gpu=2"), ONE_OF_TWO_HALF_ALLOCATED))
                .isEqualTo(new Refused("fewer than 2 GPUs wholly free", false));
    }

    @Test
    void containersOfOnePodShareAGpuWithinItsCapacity() {
        var pod = request("APP:a: gpumem=30000", "APP:b: gpumem=50000");
        var selected = (GpuSelection.Selected) GpuSelector.select(pod, empty(2, 80000), BINPACK);
        assertThat(selected.perGpu()).containsOnlyKeys(Gpus.uuid(1, 0));
        assertThat(selected.perGpu().get(Gpus.uuid(1, 0))).isEqualTo(new GpuAmount(80000, 0, 2, false));
        var tooLarge = request("APP:a: gpumem=30001", "APP:b: gpumem=50000");
        assertThat(((GpuSelection.Selected) GpuSelector.select(tooLarge, empty(2, 80000), BINPACK)).perGpu())
                .hasSize(2);
    }

    @Test
    void anInitContainerReusesTheCapacityOfLaterContainers() {
        var pod = request("INIT:first: gpu=1", "APP:main: gpumem=80000");
        var selected = (GpuSelection.Selected) GpuSelector.select(pod, empty(1, 80000), BINPACK);
        assertThat(selected.perGpu().get(Gpus.uuid(1, 0))).isEqualTo(new GpuAmount(80000, 0, 1, true));
    }

    @Test
    void aSidecarHoldsItsAmountBesideAllLaterContainers() {
        assertThat(GpuAmount.peak(List.of(
                        timed(ContainerKind.INIT, 50),
                        timed(ContainerKind.SIDECAR, 10),
                        timed(ContainerKind.INIT, 45),
                        timed(ContainerKind.APP, 20))))
                .isEqualTo(new GpuAmount(55, 0, 2, false));
        assertThat(GpuAmount.peak(List.of(timed(ContainerKind.SIDECAR, 10), timed(ContainerKind.APP, 46))))
                .isEqualTo(new GpuAmount(56, 0, 2, false));
    }

    @Test
    void aRefusalNamesTheContainerIfSeveralRequestGpus() {
        var refused = (Refused) GpuSelector.select(
                request("APP:small: gpumem=10", "APP:large: gpumem=70000"),
                List.of(gpuWith(gpu(1, 0, 80000), 10, 20000, 0, 1)),
                BINPACK);
        assertThat(refused.reason()).isEqualTo("no GPU with 70000 MiB free for container large");
    }

    private static GpuAmount.Timed timed(ContainerKind kind, int memoryMiB) {
        return new GpuAmount.Timed(kind, new GpuAmount(memoryMiB, 0, 1, false));
    }

    private static List<String> selectedFor(String container, List<GpuInfo> gpus, PlacementPolicy policy) {
        return Gpus.of(
                        ((GpuSelection.Selected) GpuSelector.select(request(container), gpus, policy)).containers(),
                        "main")
                .uuids();
    }

    private static String reason(String container, List<GpuInfo> gpus) {
        return ((Refused) GpuSelector.select(request(container), gpus, BINPACK)).reason();
    }

    @Test
    void constraintsOnModelUuidAndIndexLimitTheSelectedGpus() {
        var gpus = List.of(
                emptyGpu("NVIDIA L4", 0), emptyGpu("NVIDIA A100-SXM4-80GB", 1), emptyGpu("NVIDIA A100-SXM4-80GB", 2));
        assertThat(selectedOrReason("use-gpu-model", "a100", gpus)).isEqualTo(Gpus.uuid(1, 1));
        assertThat(selectedOrReason("avoid-gpu-model", "L4, T4", gpus)).isEqualTo(Gpus.uuid(1, 1));
        assertThat(selectedOrReason("use-gpu-uuid", Gpus.uuid(1, 2), gpus)).isEqualTo(Gpus.uuid(1, 2));
        assertThat(selectedOrReason("avoid-gpu-uuid", Gpus.uuid(1, 0) + "," + Gpus.uuid(1, 1), gpus))
                .isEqualTo(Gpus.uuid(1, 2));
        assertThat(selectedOrReason("use-gpu-index", "2", gpus)).isEqualTo(Gpus.uuid(1, 2));
        assertThat(selectedOrReason("use-gpu-model", "H100", gpus)).isEqualTo("no GPU of a model that the pod takes");
        assertThat(selectedOrReason("use-gpu-uuid", Gpus.uuid(9, 9), gpus))
                .isEqualTo("no GPU with a UUID and an index that the pod takes");
    }

    @Test
    void theVgpuCarriesThePodsCorePolicyAndPriority() {
        var annotations = Map.of("aliquot.io/core-policy", "elastic", "aliquot.io/priority", "low");
        var selected = (GpuSelection.Selected)
                GpuSelector.select(request(annotations, "APP:main: gpumem=10 gpucores=5"), empty(1, 80), BINPACK);
        assertThat(Gpus.of(selected.containers(), "main").print())
                .isEqualTo(Gpus.uuid(1, 0) + " memory=10Mi cores=5 policy=elastic context=0Mi compute-priority=low\n");
    }

    @Test
    void theSearchFindsAnAssignmentThatFirstFitDecreasingMisses() {
        var gpus = List.of(empty(gpu(1, 0, 120)), empty(gpu(1, 1, 120)), empty(gpu(1, 2, 100)));
        var selector = new PodGpuSelector(request(FILL_THREE_GPUS), gpus, BINPACK, true);
        assertThat(selector.select()).isInstanceOf(GpuSelection.Selected.class);
        assertThat(selector.attempts()).isPositive();
    }

    /** The container main gets the best GPUs, which the other container would get if it came first. */
    @ParameterizedTest(name = "{0}")
    @CsvSource(delimiter = '|', textBlock = """
            a whole card           | 0:0 0:0      | gpumem=10             | gpu=1                  | 0
            more vGPUs             | 0:40 0:0 0:0 | gpumem=50             | gpu=2 gpumem=30        | 0 1
            more memory            | 0:20 0:0     | gpumem=40             | gpumem=70              | 0
            more of the largest GPU| 0:20 0:0     | gpumem=70             | gpumem-percentage=40   | 0
            more cores             | 0:10 0:0     | gpumem=10 gpucores=50 | gpumem=10 gpucores=60  | 0
            """)
    void theContainerThatRequestsMoreComesFirst(String what, String gpus, String other, String main, String selected) {
        List<GpuInfo> node = Gpus.node(gpus, "", SharingMode.CORE_MEMORY);
        var selection = (GpuSelection.Selected)
                GpuSelector.select(request("APP:other: " + other, "APP:main: " + main), node, BINPACK);
        assertThat(Gpus.of(selection.containers(), "main").uuids())
                .isEqualTo(Arrays.stream(selected.split(" ", -1))
                        .map(index -> Gpus.uuid(1, Integer.parseInt(index)))
                        .toList());
    }

    @Test
    void containersThatThePolicyDoesNotPlaceAreSpreadOrPackedInsteadBeforeAnySearch() {
        String[] spread = {"APP:a: gpumem=50", "APP:b: gpumem=40", "APP:c: gpumem=40", "APP:d: gpumem=40"};
        assertThat(attempts("0:10 0:20", BINPACK, spread)).isZero();
        String[] pack = {"APP:a: gpumem=60", "APP:b: gpumem=50", "APP:c: gpumem=50"};
        assertThat(attempts("0:0 0:40", SPREAD, pack)).isZero();
    }

    /** The GPUs must be filled completely, and the first one is of no use. */
    @Test
    void theSearchTriesAGpuThatDiffersFromTheOnesThatItHasTried() {
        Inventory inventory = Gpus.inventory(10, gpu(1, 0, 120), gpu(1, 1, 120), gpu(1, 2, 120), gpu(1, 3, 100));
        Set<String> first = Set.of(Gpus.uuid(1, 0));
        List<GpuInfo> cordoned = emptyGpus(new NodeGpus(inventory, SharingMode.CORE_MEMORY, first));
        List<GpuInfo> wholeCards = emptyGpus(new NodeGpus(
                inventory,
                new NodeSharing(SharingMode.CORE_MEMORY, Map.of("0", new NodeSharing.OfGpu(SharingMode.EXCLUSIVE, 10))),
                Set.of()));
        List<GpuInfo> full = new ArrayList<>(emptyGpus(new NodeGpus(inventory, SharingMode.CORE_MEMORY, Set.of())));
        var avoids = request(Map.of("aliquot.io/avoid-gpu-uuid", Gpus.uuid(1, 0)), FILL_THREE_GPUS);
        assertThat(GpuSelector.select(avoids, full, BINPACK)).isInstanceOf(GpuSelection.Selected.class);
        full.set(0, full.get(0).with(new GpuAmount(120, 0, 1, false)));
        List<GpuInfo> smallestFirst = List.of(empty(gpu(1, 0, 100)), empty(gpu(1, 1, 120)), empty(gpu(1, 2, 120)));
        for (List<GpuInfo> node : List.of(cordoned, wholeCards, full, smallestFirst)) {
            var selector = new PodGpuSelector(request(FILL_THREE_GPUS), node, BINPACK, true);
            assertThat(selector.select()).as("%s", node).isInstanceOf(GpuSelection.Selected.class);
            assertThat(selector.attempts()).isPositive();
        }
    }

    @Test
    void theSearchTriesOneOfSeveralEqualGpus() {
        String[] nine = new String[9];
        Arrays.setAll(nine, i -> "APP:c" + i + ": gpumem=60");
        var selector = new PodGpuSelector(request(nine), empty(8, 100), BINPACK, true);
        assertThat(selector.select()).isEqualTo(new Refused("no GPU with 60 MiB free for container c8", false));
        assertThat(selector.attempts()).as("of 8! assignments").isBetween(9, 9 * 8);
    }

    @Test
    void theSearchEndsAfterItsAttempts() {
        var gpus = List.of(empty(gpu(1, 0, 120)), empty(gpu(1, 1, 120)), empty(gpu(1, 2, 100)));
        PodGpuRequest pod = request(FILL_THREE_GPUS);
        var search = new PodGpuSelector(pod, gpus, BINPACK, true);
        assertThat(search.select()).isInstanceOf(GpuSelection.Selected.class);
        int needed = search.attempts();
        assertThat(new PodGpuSelector(pod, gpus, BINPACK, true, needed).select())
                .isInstanceOf(GpuSelection.Selected.class);
        var tooShort = new PodGpuSelector(pod, gpus, BINPACK, true, needed - 1);
        assertThat(tooShort.select()).isInstanceOf(Refused.class);
        assertThat(tooShort.attempts()).isEqualTo(needed - 1);

        var check = new FitCheck(pod, 2 * needed - 1);
        assertThat(check.fits(gpus)).isTrue();
        assertThat(check.fits(gpus)).as("the answers share the attempts").isFalse();
        assertThat(check.fits(empty(6, 120))).as("without a search").isTrue();
        var oneVgpu = new FitCheck(request("APP:main: gpumem=100"), 0);
        assertThat(oneVgpu.fits(gpus)).isTrue();
        assertThat(oneVgpu.fits(empty(6, 99))).isFalse();
    }

    @Test
    void theSearchKeepsTheGpusOfAContainerInOneNumaDomain() {
        for (String node : List.of("0:0 0:95 1:0 1:95", "-1:0 -1:0 0:95 0:0")) {
            PodGpuRequest pod = request(NUMA_REQUIRED, "APP:a: gpu=2 gpumem=50", "APP:b: gpumem=10");
            var selector = new PodGpuSelector(pod, Gpus.node(node, "", SharingMode.CORE_MEMORY), BINPACK, true);
            assertThat(selector.select())
                    .isEqualTo(new Refused("no NUMA domain with 2 such GPUs free for container a", false));
            assertThat(selector.attempts()).isPositive();
        }
    }

    /** In pairs they fill the first domain as {@link #FILL_THREE_GPUS} fills three GPUs; the other one is of no use. */
    @Test
    void theSearchPlacesContainersInANumaDomainOfTheNode() {
        String[] pairs =
                Arrays.stream(FILL_THREE_GPUS).map(one -> one + " gpu=2").toArray(String[]::new);
        List<GpuInfo> node = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            int numa = i < 2 ? 1 : 0;
            int memoryMiB = i < 6 ? 120 : 100;
            node.add(empty(
                    new Gpu(Gpus.uuid(1, i), i, "NVIDIA Test", memoryMiB, 0, numa, Gpu.HEALTHY, Gpu.SHIM, Map.of())));
            if (i < 2) {
                node.set(i, node.get(i).with(new GpuAmount(60L * (i + 1), 0, 1, false)));
            }
        }
        var selector = new PodGpuSelector(request(NUMA_REQUIRED, pairs), node, BINPACK, true);
        assertThat(selector.select()).isInstanceOf(GpuSelection.Selected.class);
        assertThat(selector.attempts()).isPositive();
    }

    @Test
    void aRefusalForNumaIsUnresolvableIfNoDomainHasEnoughGpus() {
        String two = "APP:main: gpu=2 gpumem=50";
        for (String node : List.of("0:0 1:0 2:0", "-1:0 -1:0")) {
            assertThat(refused(request(NUMA_REQUIRED, two), Gpus.node(node, "", SharingMode.CORE_MEMORY)))
                    .isEqualTo(new Refused("no NUMA domain with 2 such GPUs", true));
        }
        assertThat(refused(request(NUMA_REQUIRED, two), Gpus.node("0:0 0:95 1:0", "", SharingMode.CORE_MEMORY)))
                .isEqualTo(new Refused("no NUMA domain with 2 such GPUs free", false));
    }

    @Test
    void ofSeveralGpusTheFirstObstacleThatTooFewOvercomeIsNamed() {
        List<GpuInfo> gpus = List.of(
                empty(gpu(1, 0, 40)), gpuWith(gpu(1, 1, 100), 10, 60, 0, 1), gpuWith(gpu(1, 2, 100), 10, 0, 90, 1));
        assertThat(reason("APP:main: gpu=4 gpumem=50", gpus)).isEqualTo("requests 4 vGPUs, the node has fewer GPUs");
        assertThat(reason("APP:main: gpu=3 gpumem=50", gpus)).isEqualTo("fewer than 3 GPUs that large: 50 MiB");
        assertThat(reason("APP:main: gpu=2 gpumem=50", gpus)).isEqualTo("fewer than 2 GPUs with 50 MiB free");
        assertThat(reason("APP:main: gpu=3 gpumem=40 gpucores=20", gpus))
                .isEqualTo("fewer than 3 GPUs with 40 MiB and 20 percent of its cores free");
        assertThat(reason("APP:main: gpumem=50 gpucores=20", gpus))
                .isEqualTo("no GPU with 50 MiB and 20 percent of its cores free");
    }

    @Test
    void aGpuThatIsCordonedOrHasTooFewCoresOrIsForWholeCardsRefusesAPod() {
        Inventory inventory = Gpus.inventory(10, gpu(1, 0, 100));
        assertThat(reason(
                        "APP:main: gpumem=1",
                        emptyGpus(new NodeGpus(inventory, SharingMode.CORE_MEMORY, Set.of(Gpus.uuid(1, 0))))))
                .isEqualTo("no GPU not cordoned");
        assertThat(reason("APP:main: gpumem=1", emptyGpus(new NodeGpus(inventory, SharingMode.EXCLUSIVE, Set.of()))))
                .isEqualTo("gives whole cards only");
        var halfOfTheCores =
                new Inventory(new VisibleDevices("{uuid}"), Scaling.ONE, new Scaling(50), 10, List.of(gpu(1, 0, 100)));
        List<GpuInfo> half = emptyGpus(new NodeGpus(halfOfTheCores, SharingMode.CORE_MEMORY, Set.of()));
        assertThat(reason("APP:main: gpumem=1 gpucores=51", half)).isEqualTo("no GPU with so much compute: 51 percent");
        assertThat(selectedFor("APP:main: gpumem=1 gpucores=50", half, BINPACK)).hasSize(1);
        assertThat(reason("APP:main: gpumem=1 gpucores=50", List.of(half.get(0).with(new GpuAmount(1, 1, 1, false)))))
                .isEqualTo("no GPU with 1 MiB and 50 percent of its cores free");
    }

    @ParameterizedTest
    @CsvSource({
        "APP:main: gpumem=10, 0.15", // half of 60 % of the memory, of one of two GPUs
        "APP:main: gpu=2 gpumem=10, 0.175",
        "APP:main: gpu=1, 0.625",
    })
    void theFullnessIsTheMeanOfTheNodesGpusWithThePod(String container, double fullness) {
        List<GpuInfo> node = Gpus.node("0:50 0:0", "", SharingMode.CORE_MEMORY);
        var selection = (GpuSelection.Selected) GpuSelector.select(request(container), node, BINPACK);
        assertThat(selection.fullness()).isCloseTo(fullness, within(1e-5));
        assertThat(GpuSelector.feasible(request(container), node, BINPACK)).isEqualTo(new Fits(selection.fullness()));
    }

    /** How many GPUs the search tried until it placed the pod. */
    private static int attempts(String gpus, PlacementPolicy policy, String... containers) {
        var selector =
                new PodGpuSelector(request(containers), Gpus.node(gpus, "", SharingMode.CORE_MEMORY), policy, true);
        assertThat(selector.select()).isInstanceOf(GpuSelection.Selected.class);
        return selector.attempts();
    }

    private static Refused refused(PodGpuRequest pod, List<GpuInfo> gpus) {
        return (Refused) GpuSelector.select(pod, gpus, BINPACK);
    }

    private static List<GpuInfo> emptyGpus(NodeGpus node) {
        return node.list().stream()
                .map(capacity -> new GpuInfo(capacity, GpuAmount.NOTHING))
                .toList();
    }

    private static GpuInfo emptyGpu(String model, int index) {
        var template = gpu(1, index, 80000);
        return empty(new Gpu(template.uuid(), index, model, 80000, 0, -1, Gpu.HEALTHY, Gpu.SHIM, Map.of()));
    }

    /** The UUID of the GPU that a pod with this annotation gets, or the reason why it gets none. */
    private static String selectedOrReason(String name, String value, List<GpuInfo> gpus) {
        GpuSelection selection =
                GpuSelector.select(request(Map.of("aliquot.io/" + name, value), "APP:main: gpumem=1"), gpus, BINPACK);
        return selection instanceof GpuSelection.Selected selected
                ? Gpus.of(selected.containers(), "main").uuids().get(0)
                : ((Refused) selection).reason();
    }
}
