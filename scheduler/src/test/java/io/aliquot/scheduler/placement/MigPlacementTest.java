package io.aliquot.scheduler.placement;

import static io.aliquot.scheduler.placement.Gpus.request;
import static io.aliquot.scheduler.placement.PlacementPolicy.FRAGMENTATION;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuKind.MigInstance;
import io.aliquot.api.nodes.SharingMode;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** MIG instances of one A100 card of 80 GB, and a card beside it. */
class MigPlacementTest {
    private static final Gpu THREE = instance(0, "3g.40gb", 3, 40_192);
    private static final Gpu ONE_DOUBLE = instance(1, "1g.20gb", 1, 19_968);
    private static final Gpu TWO = instance(2, "2g.20gb", 2, 19_968);
    private static final Gpu ONE = instance(3, "1g.10gb", 1, 9_856);
    private static final Gpu CARD = Gpus.gpu(1, 4, 81_920);
    private static final Gpu[] ALL = {THREE, TWO, ONE_DOUBLE, ONE, CARD};

    @ParameterizedTest
    @EnumSource(
            value = SharingMode.class,
            names = {"CORE_MEMORY", "MEMORY", "EXCLUSIVE", "TOPOLOGY", "MIG", "MIG_SHIM"})
    void aProfileIsAWholeInstanceInEveryMode(SharingMode mode) {
        assertThat(select("mig-2g.20gb=1", mode))
                .isEqualTo(TWO.uuid() + " memory=19968Mi cores=0 policy=fixed context=0Mi exclusive");
        assertThat(select("mig-2g.20gb=2", mode)).isEqualTo("fewer than 2 GPUs that are MIG 2g.20gb");
        assertThat(select("mig-7g.80gb=1", mode)).isEqualTo("no GPU that is a MIG 7g.80gb");
        assertThat(select("gpu=1", mode)).startsWith(CARD.uuid()).endsWith(" exclusive");
    }

    @ParameterizedTest
    @CsvSource({
        "gpumem=9000 gpucores=14, 1g.10gb",
        "gpumem=9856 gpucores=15, 1g.10gb",
        "gpumem=9000 gpucores=16, 2g.20gb",
        "gpumem=9857, 1g.20gb",
        "gpumem=19000 gpucores=29, 2g.20gb",
        "gpumem=19000 gpucores=30, 3g.40gb",
        "gpumem-percentage=12, 1g.10gb",
        "gpumem-percentage=13, 1g.20gb",
        "gpucores=43, 3g.40gb"
    })
    void aShareTakesTheSmallestInstanceThatFitsWholeByEveryPolicy(String share, String profile) {
        Gpu expected = List.of(ALL).stream()
                .filter(gpu -> gpu.model().endsWith(profile))
                .findFirst()
                .orElseThrow();
        for (PlacementPolicy policy : PlacementPolicy.values()) {
            assertThat(select(share, SharingMode.MIG, policy))
                    .startsWith(expected.uuid() + " memory=" + expected.memoryMiB() + "Mi cores=0 ")
                    .endsWith(" exclusive");
        }
    }

    @Test
    void withThePolicyFragmentationTheSmallestInstanceIsTheOnlyCandidate() {
        List<GpuInfo> gpus = empty(SharingMode.MIG);
        var models = new GpuModels();
        var host = new HostResources(64_000, 1L << 40);
        FreeCapacity node = FreeCapacity.of(
                models.shape(gpus.stream().map(GpuInfo::capacity).toList(), host), host, gpus);
        var candidates = new CandidatePlacements(request("APP:main: gpumem=9000 gpucores=14"), models);

        candidates.find(node, host, gpus, FRAGMENTATION);

        assertThat(candidates.count()).isEqualTo(1);
        assertThat(gpus.get(candidates.gpu(0)).gpu()).isEqualTo(ONE);
    }

    @Test
    void aTakenInstanceTakesNoOtherPodAndTheNextSmallestIsTaken() {
        List<GpuInfo> gpus = empty(SharingMode.MIG).stream()
                .map(gpu -> gpu.gpu().equals(ONE) ? gpu.with(new GpuAmount(9_856, 0, 1, true)) : gpu)
                .toList();
        assertThat(select("gpumem=1000", gpus, FRAGMENTATION)).startsWith(ONE_DOUBLE.uuid());
        assertThat(select("mig-1g.10gb=1", gpus, FRAGMENTATION)).isEqualTo("no GPU wholly free");
    }

    @Test
    void whatNoInstanceHoldsIsRefused() {
        assertThat(select("gpumem=40193", SharingMode.MIG)).isEqualTo("no GPU that large: 40193 MiB");
        assertThat(select("gpumem=1000 gpucores=44", SharingMode.MIG))
                .isEqualTo("no GPU with so much compute: 44 percent");
        assertThat(selectOn(new Gpu[] {ONE}, "gpumem=1000", SharingMode.CORE_MEMORY))
                .isEqualTo("no GPU but MIG instances, which are shared only with the node label"
                        + " aliquot.io/share=mig or mig-shim");
        assertThat(selectOn(new Gpu[] {ONE}, "gpu=1", SharingMode.MIG))
                .isEqualTo("no GPU but MIG instances, which whole cards do not include");
    }

    @Test
    void inModeMigShimAnInstanceIsSharedAndCoresAreOfTheCard() {
        assertThat(selectOn(new Gpu[] {ONE}, "gpumem=4000 gpucores=10", SharingMode.MIG_SHIM))
                .isEqualTo(ONE.uuid() + " memory=4000Mi cores=67 policy=fixed context=0Mi");
        assertThat(selectOn(new Gpu[] {ONE}, "gpumem=4000 gpucores=15", SharingMode.MIG_SHIM))
                .contains(" cores=100 ");
        assertThat(selectOn(new Gpu[] {ONE}, "gpumem=4000 gpucores=16", SharingMode.MIG_SHIM))
                .isEqualTo("no GPU with so much compute: 16 percent");
    }

    private static Gpu instance(int index, String profile, int slices, int memoryMiB) {
        String uuid = Gpus.uuid(1, index).replace("GPU", "MIG");
        String model = "NVIDIA A100-SXM4-80GB MIG " + profile;
        var kind = new MigInstance(Gpus.uuid(2, 0), profile, slices, 7, 14 * slices, 81_920);
        return new Gpu(uuid, index, model, memoryMiB, 0, -1, Gpu.HEALTHY, Gpu.SHIM, Map.of(), List.of(), kind);
    }

    private static List<GpuInfo> empty(SharingMode mode, Gpu... gpus) {
        var node = new NodeGpus(Gpus.inventory(10, gpus.length == 0 ? ALL : gpus), mode, Set.of());
        return node.list().stream()
                .map(capacity -> new GpuInfo(capacity, GpuAmount.NOTHING))
                .toList();
    }

    private static String select(String limits, SharingMode mode) {
        return select(limits, mode, PlacementPolicy.BINPACK);
    }

    private static String select(String limits, SharingMode mode, PlacementPolicy policy) {
        return select(limits, empty(mode), policy);
    }

    private static String selectOn(Gpu[] gpus, String limits, SharingMode mode) {
        return select(limits, empty(mode, gpus), PlacementPolicy.BINPACK);
    }

    /** The first vGPU as a line of the limit file, or why there is none. */
    private static String select(String limits, List<GpuInfo> gpus, PlacementPolicy policy) {
        return switch (GpuSelector.select(request("APP:main: " + limits), gpus, policy)) {
            case GpuSelection.Selected selected ->
                Gpus.of(selected.containers(), "main").print().strip();
            case Feasibility.Refused refused -> refused.reason();
        };
    }
}
