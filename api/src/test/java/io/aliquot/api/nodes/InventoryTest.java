package io.aliquot.api.nodes;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Resources;
import io.aliquot.api.pods.Randomly;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class InventoryTest {
    private static final String GOOD = """
            {"version":1,"visibleDevices":"{uuid}","memoryScaling":1.0,"coreScaling":1.0,"slots":10,"gpus":[\
            {"uuid":"GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001","index":0,"model":"NVIDIA A100-SXM4-80GB",\
            "memoryMiB":81920,"contextMiB":0,"numa":0,"healthy":true,"mode":"shim",\
            "links":{"GPU-8f6e8f0c-0002-4a5b-9c3d-000000000002":"nvlink4"}}]}""";

    @Test
    void parsesAndPrintsTheExampleOfTheArchitecture() {
        Inventory inventory = Inventory.parse(GOOD);

        assertThat(inventory.slots()).isEqualTo(10);
        assertThat(inventory.gpus()).singleElement().satisfies(gpu -> {
            assertThat(gpu.memoryMiB()).isEqualTo(81920);
            assertThat(gpu.links().values()).containsExactly(new Link(Link.Kind.NVLINK, 4));
        });
        assertThat(inventory.print()).isEqualTo(GOOD);
    }

    @Test
    void ignoresFieldsOfANewerVersion() {
        assertThat(Inventory.parse(GOOD.replace("\"slots\"", "\"color\":\"green\",\"slots\"")))
                .isEqualTo(Inventory.parse(GOOD));
    }

    @Test
    void parsesWhatItPrints() {
        Randomly.times(500, random -> {
            List<String> uuids = IntStream.range(0, random.nextInt(17))
                    .mapToObj(i -> Randomly.gpuUuid(random))
                    .toList();
            var gpus = IntStream.range(0, uuids.size())
                    .mapToObj(i -> new Gpu(
                            uuids.get(i),
                            i,
                            "NVIDIA \"" + random.nextInt() + "\" é",
                            1 + random.nextInt(Gpu.LARGEST_MIB),
                            0,
                            random.nextInt(4) - 1,
                            health(random),
                            Gpu.SHIM,
                            uuids.stream()
                                    .filter(other -> !other.equals(uuids.get(i)))
                                    .collect(Collectors.toMap(
                                            other -> other,
                                            other -> random.nextBoolean()
                                                    ? new Link(Link.Kind.NVLINK, 1 + random.nextInt(18))
                                                    : new Link(Link.Kind.SYS, 0),
                                            (a, b) -> a,
                                            TreeMap::new))))
                    .toList();
            var inventory = new Inventory(
                            new VisibleDevices("{uuid}"),
                            new Scaling(10 + random.nextInt(9991)),
                            new Scaling(10 + random.nextInt(9991)),
                            1 + random.nextInt(SlotCount.MOST),
                            gpus)
                    .withWithheld(random.nextBoolean());

            assertThat(Inventory.parse(inventory.print())).isEqualTo(inventory);
        });
    }

    private static GpuHealth health(Random random) {
        return random.nextBoolean()
                ? Gpu.HEALTHY
                : new GpuHealth.Unhealthy(
                        "reason \"" + random.nextInt() + "\" é",
                        Instant.ofEpochSecond(random.nextInt()),
                        random.nextBoolean() ? OptionalInt.empty() : OptionalInt.of(1 + random.nextInt(200)),
                        random.nextBoolean() ? GpuHealth.Recovery.RESET : GpuHealth.Recovery.REBOOT);
    }

    @Test
    void anUnhealthyGpuHasAReasonATimeAndWhatEndsIt() {
        String text = GOOD.replace(
                "\"healthy\":true",
                "\"healthy\":false,\"reason\":\"XID 48\",\"since\":\"2026-11-26T16:00:00Z\",\"xid\":48,"
                        + "\"recovery\":\"reset\"");

        Inventory inventory = Inventory.parse(text);

        assertThat(inventory.gpus().getFirst().health())
                .isEqualTo(new GpuHealth.Unhealthy(
                        "XID 48", Instant.parse("2026-11-26T16:00:00Z"), OptionalInt.of(48), GpuHealth.Recovery.RESET));
        assertThat(inventory.print()).isEqualTo(text);
    }

    @Test
    void parsesAndPrintsTotalsThatAreLargerThanTheSumsOverTheGpus() {
        Inventory inventory = Inventory.parse(GOOD).withTotals(Map.of(Resources.MEMORY, 327_680L));

        assertThat(inventory.print()).contains("\"totals\":{\"nvidia.com/gpumem\":327680}");
        assertThat(Inventory.parse(inventory.print())).isEqualTo(inventory);
        assertThatThrownBy(() -> Inventory.parse(inventory.print().replace("327680", "1.5")))
                .hasMessageContaining("a whole number nvidia.com/gpumem");
    }

    @ParameterizedTest
    @ValueSource(strings = {"v1 cgroupfs", "v2 systemd", Inventory.HIDDEN_CGROUPS})
    void parsesAndPrintsWhichCgroupsTheNodeHas(String cgroups) {
        Inventory inventory = Inventory.parse(GOOD).withCgroups(cgroups);

        assertThat(inventory.print()).contains("\"cgroups\":\"" + cgroups + "\"");
        assertThat(Inventory.parse(inventory.print())).isEqualTo(inventory);
        assertThatThrownBy(() -> Inventory.parse(inventory.print().replace(cgroups, "v3 systemd")))
                .hasMessageContaining("a version of cgroups and a driver");
    }

    @Test
    void parsesAndPrintsWhetherProgramsUseMps() {
        Inventory inventory = Inventory.parse(GOOD).withMps(true);

        assertThat(inventory.print()).contains("\"mps\":true");
        assertThat(Inventory.parse(inventory.print())).isEqualTo(inventory);
    }

    @Test
    void parsesAndPrintsWhichCertificateTheAgentServes() {
        String digest = "0123456789abcdef".repeat(4);
        Inventory inventory = Inventory.parse(GOOD).withCertificate(digest);

        assertThat(inventory.print()).contains("\"certificate\":\"" + digest + "\"");
        assertThat(Inventory.parse(inventory.print())).isEqualTo(inventory);
        assertThatThrownBy(() -> Inventory.parse(inventory.print().replace("ef\"", "e\"")))
                .hasMessageContaining("the digest of a certificate");
    }

    @Test
    void parsesAndPrintsTheBootAndTheDriver() {
        String text = GOOD.replace(
                "\"slots\":10",
                "\"slots\":10,\"bootId\":\"dc93c6bb-6b52-4d2a-9d0e-0b0c4c1b2a3d\","
                        + "\"driverVersion\":\"550.54.15\"");

        Inventory inventory = Inventory.parse(text);

        assertThat(inventory.driverVersion()).isEqualTo("550.54.15");
        assertThat(inventory.print()).isEqualTo(text);
        assertThat(Inventory.parse(GOOD).withDriver(inventory.bootId(), inventory.driverVersion()))
                .isEqualTo(inventory);
        assertThatThrownBy(() -> Inventory.parse(text.replace("dc93c6bb", "boot")))
                .hasMessageContaining("a boot id");
        assertThatThrownBy(() -> Inventory.parse(text.replace("550.54.15", "550\\n")))
                .hasMessageContaining("a driver's version");
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "\"version\":1 | \"version\":2 | version 1",
                "\"version\":1, | '' | version",
                "\"slots\":10 | \"slots\":0 | slots from 1",
                "\"slots\":10 | \"slots\":\"10\" | slots",
                "\"memoryScaling\":1.0 | \"memoryScaling\":0.001 | a scaling from 0.1",
                "\"coreScaling\":1.0 | \"coreScaling\":\"2\" | a number coreScaling",
                "\"memoryMiB\":81920 | \"memoryMiB\":-1 | memoryMiB from 1",
                "\"memoryMiB\":81920 | \"memoryMiB\":99999999999 | memoryMiB",
                "\"index\":0 | \"index\":0.5 | index",
                "GPU-8f6e8f0c-0001 | GPU-8F6E8F0C-0001 | UUID",
                "nvlink4 | nvlink0 | nvlink<n>",
                "\"healthy\":true | \"healthy\":\"yes\" | healthy",
                "\"healthy\":true | \"healthy\":false,\"reason\":\"a\" | since",
                "\"healthy\":true | \"healthy\":false,\"reason\":\" \" | since",
                "\"healthy\":true | \"healthy\":false,\"reason\":\"a\",\"since\":\"now\" | a time since",
                "\"healthy\":true | \"healthy\":false,\"reason\":\"\\n\",\"since\":\"2026-11-26T16:00:00Z\",\"recovery\":\"probe\" | printable",
                "\"healthy\":true | \"healthy\":false,\"reason\":\"a\",\"since\":\"2026-11-26T16:00:00Z\",\"recovery\":\"hope\" | reboot",
                "\"healthy\":true | \"healthy\":false,\"reason\":\"a\",\"since\":\"2026-11-26T16:00:00Z\",\"xid\":0,\"recovery\":\"probe\" | XID",
                "{uuid} | uuid | {uuid}",
                "\"gpus\":[ | \"gpus\":[[], | object",
                "}]} | }] | JSON",
                "}]} | }]} x | JSON",
                "\"slots\":10 | \"slots\":10,\"slots\":11 | JSON",
            })
    void rejectsInvalidTextAndNamesTheProblem(String right, String wrong, String message) {
        assertThatThrownBy(() -> Inventory.parse(GOOD.replace(right, wrong)))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining(message);
    }

    @Test
    void parsesAndPrintsWhatOtherDevicePluginsDo() {
        String text = GOOD.replace("\"slots\":10", "\"slots\":10,\"conflict\":\"another plugin\"")
                .replace("}}]}", "},\"heldBy\":[{\"pod\":\"team/train\",\"resource\":\"nvidia.com/gpu\"}]}]}");

        Inventory inventory = Inventory.parse(text);

        assertThat(inventory.conflict()).isEqualTo("another plugin");
        assertThat(inventory.gpus().get(0).heldBy())
                .singleElement()
                .satisfies(holder ->
                        assertThat(holder.print()).isEqualTo("held by pod team/train through nvidia.com/gpu"));
        assertThat(inventory.print()).isEqualTo(text);
        String hami = text.replace("\"nvidia.com/gpu\"}", "\"nvidia.com/gpu\",\"hami\":true}");
        assertThat(Inventory.parse(hami).gpus().get(0).heldBy())
                .containsExactly(new ForeignHolder("team/train", "nvidia.com/gpu", true));
        assertThat(Inventory.parse(hami).print()).isEqualTo(hami);
        assertThatThrownBy(() -> Inventory.parse(hami.replace("\"hami\":true", "\"hami\":1")))
                .hasMessageContaining("hami true or false");
        assertThatThrownBy(() -> Inventory.parse(text.replace("team/train", "Team")))
                .hasMessageContaining("a pod's namespace/name");
        assertThatThrownBy(() -> Inventory.parse(text.replace("[{\"pod\"", "[[],{\"pod\"")))
                .hasMessageContaining("an object for each holder");
    }

    @Test
    void parsesAndPrintsAnInstance() {
        var instance =
                new GpuKind.MigInstance("GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001", "1g.10gb+me", 1, 7, 14, 81_920);
        var gpu = new Gpu(
                "MIG-5f2c1d3e-0002-4a5b-9c3d-000000000002",
                100,
                "NVIDIA A100-SXM4-80GB MIG 1g.10gb+me",
                9_856,
                0,
                0,
                Gpu.HEALTHY,
                Gpu.SHIM,
                Map.of(),
                List.of(),
                instance);
        var inventory = new Inventory(new VisibleDevices("{uuid}"), Scaling.ONE, Scaling.ONE, 10, List.of(gpu));

        assertThat(inventory.print())
                .contains("\"mig\":{\"card\":\"GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001\",\"profile\":\"1g.10gb+me\","
                        + "\"slices\":1,\"cardSlices\":7,\"multiprocessors\":14,\"cardMiB\":81920}");
        assertThat(Inventory.parse(inventory.print())).isEqualTo(inventory);
        assertThat(instance.profileInResources()).isEqualTo("1g.10gb.me");
    }

    @Test
    void rejectsTwoGpusWithOneIndex() {
        var one =
                new Gpu("GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001", 0, "m", 1, 0, -1, Gpu.HEALTHY, Gpu.SHIM, Map.of());
        var two =
                new Gpu("GPU-8f6e8f0c-0002-4a5b-9c3d-000000000001", 0, "m", 1, 0, -1, Gpu.HEALTHY, Gpu.SHIM, Map.of());

        assertThatThrownBy(() ->
                        new Inventory(new VisibleDevices("{uuid}"), Scaling.ONE, Scaling.ONE, 1, List.of(one, two)))
                .isInstanceOf(FormatException.class);
    }

    @Test
    void allocatableCapacityIsThePhysicalCapacityTimesTheScaling() {
        var gpu = new Gpu(
                "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001", 0, "m", 81_921, 0, -1, Gpu.HEALTHY, Gpu.SHIM, Map.of());
        var inventory = new Inventory(new VisibleDevices("{uuid}"), new Scaling(150), new Scaling(80), 1, List.of(gpu));

        assertThat(inventory.allocatableMiB(gpu)).isEqualTo(122_881);
        assertThat(inventory.allocatableCores()).isEqualTo(80);
    }

    /** With less, kube-scheduler would refuse a pod that requests 100 percent of a GPU. */
    @Test
    void reportsAtLeast100PercentOfMemoryForEachGpu() {
        var gpu = new Gpu(
                "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001", 0, "m", 1000, 0, -1, Gpu.HEALTHY, Gpu.SHIM, Map.of());
        var visible = new VisibleDevices("{uuid}");
        var less = new Inventory(visible, new Scaling(90), Scaling.ONE, 1, List.of(gpu));
        var more = new Inventory(visible, new Scaling(150), Scaling.ONE, 1, List.of(gpu));

        assertThat(less.extendedResources(NodeSharing.all(SharingMode.CORE_MEMORY)))
                .containsEntry(Resources.MEMORY, 900L)
                .containsEntry(Resources.MEMORY_PERCENTAGE, 100L);
        assertThat(more.extendedResources(NodeSharing.all(SharingMode.CORE_MEMORY)))
                .containsEntry(Resources.MEMORY_PERCENTAGE, 150L);
    }
}
