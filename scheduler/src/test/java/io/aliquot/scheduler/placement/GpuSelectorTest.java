package io.aliquot.scheduler.placement;

import static io.aliquot.scheduler.placement.Gpus.empty;
import static io.aliquot.scheduler.placement.Gpus.gpu;
import static io.aliquot.scheduler.placement.Gpus.gpuWith;
import static io.aliquot.scheduler.placement.Gpus.request;
import static io.aliquot.scheduler.placement.PlacementPolicy.BINPACK;
import static io.aliquot.scheduler.placement.PlacementPolicy.SPREAD;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.ForeignHolder;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.scheduler.placement.Feasibility.Refused;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

class GpuSelectorTest {
    private static final List<GpuInfo> TWO_PARTLY_ALLOCATED =
            List.of(gpuWith(gpu(1, 0, 80000), 10, 20000, 0, 2), gpuWith(gpu(1, 1, 80000), 10, 30000, 0, 3));

    @Test
    void binpackSelectsTheFullestGpuThatHoldsTheVgpu() {
        assertThat(selectedFor("APP:main: gpumem=50000", TWO_PARTLY_ALLOCATED, BINPACK))
                .containsExactly(Gpus.uuid(1, 1));
        assertThat(selectedFor("APP:main: gpumem=50001", TWO_PARTLY_ALLOCATED, BINPACK))
                .containsExactly(Gpus.uuid(1, 0));
    }

    @Test
    void spreadSelectsTheEmptiestGpu() {
        assertThat(selectedFor("APP:main: gpumem=1000", TWO_PARTLY_ALLOCATED, SPREAD))
                .containsExactly(Gpus.uuid(1, 0));
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
        // 7+5, 6+6 and 5+5 fill the three GPUs completely.
        var gpus = List.of(empty(gpu(1, 0, 12)), empty(gpu(1, 1, 12)), empty(gpu(1, 2, 10)));
        var pod = request(
                "APP:a: gpumem=7",
                "APP:b: gpumem=6",
                "APP:c: gpumem=6",
                "APP:d: gpumem=5",
                "APP:e: gpumem=5",
                "APP:f: gpumem=5");
        var selector = new PodGpuSelector(pod, gpus, BINPACK, true);
        assertThat(selector.select()).isInstanceOf(GpuSelection.Selected.class);
        assertThat(selector.attempts()).isPositive();
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
