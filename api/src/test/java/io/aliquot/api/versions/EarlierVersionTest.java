package io.aliquot.api.versions;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.format.JsonFields;
import io.aliquot.api.nodes.ForeignHolder;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.api.nodes.GpuKind;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.Link;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Held;
import io.aliquot.api.pods.Priority;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.pods.Vgpus;
import io.aliquot.api.shim.AgentFile;
import io.aliquot.api.shim.Region;
import io.aliquot.api.usage.NodeAllocation;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageHistory;
import io.aliquot.api.usage.UsageReport;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import tools.jackson.databind.JsonNode;

/**
 * Two versions side by side, as during an upgrade and after a rollback. {@code golden/earlier} and {@code
 * native-shim/golden/earlier} have what the newest release wrote, or until there is one the commit before the first release.
 * This version reads it; and what this version writes, with each word that it knows, is read by that one, whose rules are
 * repeated here.
 */
class EarlierVersionTest {
    private static final Path EARLIER = Path.of("golden", "earlier");
    private static final Path NATIVE = Path.of("..", "native-shim", "golden");

    private static final String CARD = "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001";
    private static final String INSTANCE = "MIG-8f6e8f0c-0002-4a5b-9c3d-000000000002";
    private static final Instant AT = Instant.parse("2026-11-26T20:00:00Z");
    private static final PodContainer MAIN =
            new PodContainer("team", "train", "0a1b2c3d-0000-4000-8000-00000000000f", "main");

    /** What one program writes and another reads. */
    private enum Document {
        /** Of an agent, for schedulers. */
        INVENTORY,
        /** Of an agent, for schedulers. */
        REPORT,
        /** Of an agent, for schedulers. */
        HISTORY,
        /** Of a scheduler, for agents. */
        ALLOCATION;

        String example() {
            return switch (this) {
                case INVENTORY -> inventory().print();
                case REPORT -> report().print();
                case HISTORY -> history().print();
                case ALLOCATION -> allocation().print();
            };
        }

        String readAndPrint(String text) {
            return switch (this) {
                case INVENTORY -> Inventory.parse(text).print();
                case REPORT -> UsageReport.parse(text).print();
                case HISTORY -> UsageHistory.parse(text).print();
                case ALLOCATION -> NodeAllocation.parse(text).print();
            };
        }

        String earlier() throws IOException {
            return Files.readString(EARLIER.resolve(name().toLowerCase(Locale.ROOT) + ".json"));
        }

        EarlierReader earlierReader() {
            return new EarlierReader(EARLIER.resolve(name().toLowerCase(Locale.ROOT) + ".rules"));
        }
    }

    @ParameterizedTest
    @EnumSource(Document.class)
    void whatTheEarlierVersionWroteIsReadAndNothingOfItIsLost(Document document) throws IOException {
        String earlier = document.earlier();

        assertThat(values(document.readAndPrint(earlier))).containsAll(values(earlier));
    }

    @ParameterizedTest
    @EnumSource(Document.class)
    void theEarlierVersionReadsWhatThisOneWrites(Document document) throws IOException {
        assertThat(document.earlierReader().refusals(document.earlier())).isEmpty();
        assertThat(document.earlierReader().refusals(document.example())).isEmpty();
    }

    /** The frozen reader refuses, as the earlier version does, what these documents could be changed to. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "INVENTORY  | \"mode\":\"shim\"   | \"mode\":\"other\"   | gpus[].mode: expected shim",
                "INVENTORY  | \"slots\":10        | \"slot\":10          | slots: expected it",
                "INVENTORY  | \"pix\"             | \"c2c\"              | links?.*: expected nvlink",
                "ALLOCATION | \"policy\":\"none\" | \"policy\":\"burst\" | limits[].policy: expected fixed",
                "ALLOCATION | \"held\":\"share\"  | \"hold\":\"share\"   | limits[].held: expected it",
                "REPORT     | \"processes\":1     | \"processes\":\"1a\" | containers[].processes: expected",
                "HISTORY    | \"stepSeconds\":1   | \"stepSeconds\":0    | stepSeconds: expected",
            })
    void whatTheEarlierVersionRefusesIsFound(Document document, String right, String wrong, String refusal) {
        assertThat(document.example()).contains(right);
        assertThat(document.earlierReader().refusals(document.example().replace(right, wrong)))
                .anySatisfy(line -> assertThat(line).contains(refusal));
    }

    @Test
    void limitsOfBothVersionsAreReadByBoth() throws IOException {
        String earlier = Files.readString(EARLIER.resolve("limits.vgpu"));
        var reader = new EarlierReader(EARLIER.resolve("limits.rules"));

        assertThat(Vgpus.parse(earlier).print()).isEqualTo(earlier);
        for (String line : (earlier + limits().print()).lines().toList()) {
            assertThat(reader.refusals(fields(line))).as(line).isEmpty();
        }
    }

    /** The fields of a line as a JSON object: flags have no value. */
    private static String fields(String line) {
        var object = JsonFields.JSON.createObjectNode();
        Stream.of(line.split(" +", -1)).skip(1).forEach(field -> {
            String[] keyAndValue = field.split("=", 2);
            assertThat(object.has(keyAndValue[0])).as("%s twice", field).isFalse();
            object.put(keyAndValue[0], keyAndValue.length == 1 ? "" : keyAndValue[1]);
        });
        return object.toString();
    }

    /** The generator of native-shim/golden/agent.bin keeps the values of the fields that the earlier version has. */
    @Test
    void theEarlierShimReadsTheAgentsFile() throws IOException {
        String expected = Files.readString(NATIVE.resolve("earlier/agent.expected"));

        assertThat(agentAsEarlier(Files.readAllBytes(NATIVE.resolve("earlier/agent.bin"))))
                .isEqualTo(expected);
        assertThat(agentAsEarlier(Files.readAllBytes(NATIVE.resolve("agent.bin"))))
                .isEqualTo(expected);
        assertThat(AgentFile.parse(Files.readAllBytes(NATIVE.resolve("earlier/agent.bin")))
                        .devices())
                .isEqualTo(AgentFile.parse(Files.readAllBytes(NATIVE.resolve("agent.bin")))
                        .devices())
                .isNotEmpty();
    }

    @Test
    void theEarlierAgentAndArbiterReadRegions() throws IOException {
        String expected = Files.readString(NATIVE.resolve("earlier/region.expected"));

        byte[] earlier = Files.readAllBytes(NATIVE.resolve("earlier/region.bin"));
        assertThat(regionAsEarlier(earlier)).isEqualTo(expected);
        assertThat(regionAsEarlier(Files.readAllBytes(NATIVE.resolve("region.bin"))))
                .isEqualTo(expected);
        assertThat(Region.read(
                                (part, at) -> part.put(earlier, (int) at, part.remaining())
                                        .position(),
                                ByteBuffer.allocate(Region.SIZE))
                        .devices())
                .isNotEmpty();
    }

    /** The layout of the earlier agent.h; in the form of {@code agent.expected}. */
    private static String agentAsEarlier(byte[] bytes) {
        ByteBuffer file = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        assertThat(file.getLong(0)).as("magic").isEqualTo(0x3154474151494c41L);
        assertThat(file.getInt(12)).as("header_size").isEqualTo(64);
        assertThat(file.getInt(24)).as("device_size").isEqualTo(128);
        var text = new StringBuilder("version " + file.getInt(8) + "\nsize " + file.getInt(16) + "\ndevices "
                + file.getInt(20) + "\nholds " + file.getInt(28) + "\n");
        for (int device = 0; device < 16; device++) {
            int at = 64 + device * 128;
            if (file.getLong(at) == 0 && file.getLong(at + 8) == 0) {
                continue;
            }
            text.append("device ").append(device).append(' ').append(uuid(bytes, at));
            text.append(" unattributed=").append(file.getLong(at + 24));
            text.append(" updated-ms=").append(file.getLong(at + 32));
            var words = new LinkedHashMap<String, Integer>();
            words.put("granted", 16);
            words.put("active", 48);
            words.put("borrowed", 56);
            words.put("turn", 64);
            words.forEach((name, offset) -> {
                long word = file.getLong(at + offset);
                text.append(" %s=%d %s-ms=%d".formatted(name, word & 0xfffff, name, word >>> 20));
            });
            text.append('\n');
        }
        return text.toString();
    }

    /** The layout of the earlier region.h; in the form of {@code region.expected}. */
    private static String regionAsEarlier(byte[] bytes) {
        ByteBuffer file = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        assertThat(file.getLong(0)).as("magic").isEqualTo(0x31544f5551494c41L);
        assertThat(List.of(file.getInt(12), file.getInt(32), file.getInt(36), file.getInt(40)))
                .as("sizes of the header, a device, a process and a charge")
                .containsExactly(4096, 256, 64, 64);
        var text = new StringBuilder("version " + file.getInt(8) + "\nsize " + file.getLong(16) + "\ndevices "
                + file.getInt(24) + "\nprocesses " + file.getInt(28) + "\nhigh-water " + file.getInt(64)
                + "\nunhooked-functions " + file.getLong(128) + "\nprocess-refused-ms " + file.getLong(136) + "\n");
        for (int device = 0; device < 16; device++) {
            int at = 4096 + device * 256;
            if (file.getLong(at) == 0 && file.getLong(at + 8) == 0) {
                continue;
            }
            long used = 0;
            var charges = new StringBuilder();
            for (int process = 0; process < 512; process++) {
                int charge = 40960 + (device * 512 + process) * 64;
                long word = file.getLong(charge);
                if (word != 0) {
                    used += word & 0xfffffffffffffL;
                    charges.append("charge device=%d process=%d bytes=%d undecided=%d gpu-time=%d peak=%d context=%d\n"
                            .formatted(
                                    device,
                                    process,
                                    word & 0xfffffffffffffL,
                                    word >>> 52,
                                    file.getLong(charge + 8),
                                    file.getLong(charge + 16),
                                    file.getLong(charge + 24)));
                }
            }
            text.append("device %d %s used=%d tat=%d gpu-time=%d throttled=%d wanted=%d denied=%d\n"
                    .formatted(
                            device,
                            uuid(bytes, at),
                            used,
                            file.getLong(at + 64),
                            file.getLong(at + 72),
                            file.getLong(at + 80),
                            file.getLong(at + 88),
                            file.getLong(at + 128)));
            text.append(charges);
        }
        for (int process = 0; process < 512; process++) {
            int at = 8192 + process * 64;
            if (file.getInt(at) != 0) {
                text.append("process %d pid=%s started=%d\n"
                        .formatted(process, Integer.toUnsignedString(file.getInt(at)), file.getLong(at + 8)));
            }
        }
        return text.toString();
    }

    private static String uuid(byte[] bytes, int at) {
        String hex = HexFormat.of().formatHex(bytes, at, at + 16);
        return hex.replaceFirst("(.{8})(.{4})(.{4})(.{4})(.{12})", "GPU-$1-$2-$3-$4-$5");
    }

    /** Each value of a JSON text with its path. */
    private static Set<String> values(String text) {
        var values = new TreeSet<String>();
        addValues("", JsonFields.JSON.readTree(text), values);
        return values;
    }

    private static void addValues(String path, JsonNode node, Set<String> values) {
        if (node.isObject()) {
            node.properties().forEach(field -> addValues(path + "." + field.getKey(), field.getValue(), values));
        } else if (node.isArray()) {
            for (int i = 0; i < node.size(); i++) {
                addValues(path + "[" + i + "]", node.get(i), values);
            }
        } else {
            values.add(path + "=" + node);
        }
    }

    // --- what this version writes, with every word ---

    private static Inventory inventory() {
        var gpus = new ArrayList<Gpu>();
        var links = new LinkedHashMap<String, Link>();
        for (Link.Kind kind : Link.Kind.values()) {
            links.put(card(100 + links.size()), new Link(kind, kind == Link.Kind.NVLINK ? 12 : 0));
        }
        gpus.add(gpu(
                0, CARD, Gpu.HEALTHY, GpuKind.CARD, links, List.of(new ForeignHolder("team/train", "nvidia.com/gpu"))));
        gpus.add(gpu(
                1,
                INSTANCE,
                Gpu.HEALTHY,
                new GpuKind.MigInstance(CARD, "1g.10gb+me", 1, 7, 14, 81920),
                Map.of(),
                List.of(new ForeignHolder("team/train", "nvidia.com/gpumem", true))));
        for (GpuHealth.Recovery recovery : GpuHealth.Recovery.values()) {
            int index = gpus.size();
            gpus.add(gpu(
                    index,
                    card(index),
                    new GpuHealth.Unhealthy("XID error 48", AT, OptionalInt.of(48), recovery),
                    GpuKind.CARD,
                    Map.of(),
                    List.of()));
        }
        return new Inventory(
                new VisibleDevices("runtime.nvidia.com/gpu={uuid}"),
                new Scaling(150),
                new Scaling(100),
                10,
                gpus,
                Inventory.KUBELET_GONE,
                "0a1b2c3d-0000-4000-8000-00000000000f",
                "570.86.15",
                "v2 systemd",
                true,
                Map.of("nvidia.com/gpumem", 300_000L),
                "0123456789abcdef".repeat(4),
                true);
    }

    private static String card(int number) {
        return "GPU-8f6e8f0c-0001-4a5b-9c3d-%012d".formatted(number);
    }

    private static Gpu gpu(
            int index,
            String uuid,
            GpuHealth health,
            GpuKind kind,
            Map<String, Link> links,
            List<ForeignHolder> holders) {
        return new Gpu(uuid, index, "NVIDIA A100-SXM4-80GB", 81920, 256, -1, health, Gpu.SHIM, links, holders, kind);
    }

    private static UsageReport report() {
        var nothing = new UsageReport.OfContainer(
                MAIN,
                INSTANCE,
                OptionalLong.empty(),
                OptionalLong.empty(),
                OptionalLong.empty(),
                0,
                0,
                OptionalInt.empty(),
                OptionalInt.empty(),
                OptionalInt.empty(),
                0,
                0,
                0,
                Optional.empty());
        var all = new UsageReport.OfContainer(
                MAIN,
                CARD,
                OptionalLong.of(2000),
                OptionalLong.of(256),
                OptionalLong.of(2256),
                3000,
                1.5,
                OptionalInt.of(37),
                OptionalInt.of(0),
                OptionalInt.of(12),
                0.25,
                4,
                1,
                Optional.of(AT));
        return new UsageReport(
                AT,
                "node1",
                List.of(all, nothing),
                List.of(new UsageReport.OfGpu(
                        CARD,
                        OptionalLong.of(5000),
                        OptionalLong.of(0),
                        OptionalInt.of(40),
                        OptionalInt.of(31),
                        OptionalDouble.of(250.5))),
                List.of(new UsageReport.ApplicationXid(CARD, 31, "memory page fault", MAIN)),
                Stream.of(
                                new UsageReport.Problem.LargeRegion(600_000, true),
                                new UsageReport.Problem.LimitsNotSeen("/etc/ld.so.preload"),
                                new UsageReport.Problem.WithoutShim(CARD),
                                new UsageReport.Problem.ImageWithoutLoader(),
                                new UsageReport.Problem.GpuNotSeen(),
                                new UsageReport.Problem.ProcessTableFull(),
                                new UsageReport.Problem.ClosedFile())
                        .map(problem -> new UsageReport.Finding(MAIN, problem))
                        .toList(),
                Optional.of(Set.of(MAIN.uid())));
    }

    private static UsageHistory history() {
        List<OptionalInt> series = List.of(OptionalInt.empty(), OptionalInt.of(50));
        return new UsageHistory(
                AT,
                1,
                new UsageHistory.OfGpu(series, series),
                List.of(new UsageHistory.OfContainer(MAIN, series, series, series, series, series, series, series)),
                List.of(
                        new UsageHistory.HealthChange(AT, false, "XID error 48"),
                        new UsageHistory.HealthChange(AT.plusSeconds(60), true, "")));
    }

    private static NodeAllocation allocation() {
        var limits = new ArrayList<NodeAllocation.Limit>();
        for (CorePolicy policy : CorePolicy.values()) {
            for (Priority priority : Priority.values()) {
                for (Held held : Held.values()) {
                    limits.add(new NodeAllocation.Limit(MAIN, card(limits.size()), 3000, 30, policy, priority, held));
                }
            }
        }
        return new NodeAllocation(
                List.of(new NodeAllocation.OfGpu(
                        CARD,
                        "NVIDIA H200",
                        new NodeAllocation.Amount(143_771, 100, 16),
                        new NodeAllocation.Amount(3000, 30, 1),
                        true)),
                limits,
                List.of(new NodeAllocation.OfPod("team", "train", 3000, 30)));
    }

    private static Vgpus limits() {
        var vgpus = new ArrayList<Vgpu>();
        for (CorePolicy policy : CorePolicy.values()) {
            for (Priority priority : Priority.values()) {
                int number = vgpus.size();
                vgpus.add(new Vgpu(card(number), 3000, 30, policy, priority, 256, number % 2 == 1));
            }
        }
        return new Vgpus(vgpus);
    }
}
