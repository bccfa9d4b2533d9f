package io.aliquot.api.format;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.foreign.HamiAllocation;
import io.aliquot.api.foreign.HamiAnnotations;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.PodDefaults;
import io.aliquot.api.pods.Randomly;
import io.aliquot.api.pods.Vgpus;
import io.aliquot.api.shim.AgentFile;
import io.aliquot.api.shim.Region;
import io.aliquot.api.usage.UsageHistory;
import io.aliquot.api.usage.UsageReport;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Every parser of what a tenant, a node or another product writes reads a damaged text or refuses it, and never fails. */
class ParsersTest {
    private static final String GPU = "GPU-11111111-2222-3333-4444-555555555555";
    private static final Path GOLDEN = Path.of("..", "native-shim", "golden");
    private static final List<String> PIECES = List.of(
            "",
            " ",
            "\n",
            "\0",
            "é",
            "\ud800",
            "\uffff",
            "-",
            "+",
            ".",
            ",",
            ":",
            ";",
            "/",
            "=",
            "\"",
            "'",
            "\\",
            "{",
            "}",
            "[",
            "]",
            "0",
            "9",
            "e",
            "E",
            "null",
            "true",
            "1e99",
            "-1",
            "99999999999999999999",
            "Ki",
            GPU);

    private record Parser(String name, String example, Consumer<String> parse) {
        @Override
        public String toString() {
            return name;
        }
    }

    private static Stream<Parser> parsers() {
        String node =
                "{\"version\":1,\"visibleDevices\":\"{uuid}\",\"memoryScaling\":1.5,\"coreScaling\":1.0,\"slots\":10,"
                        + "\"gpus\":[{\"uuid\":\"" + GPU
                        + "\",\"index\":0,\"model\":\"A100\",\"memoryMiB\":40960,\"contextMiB\":1,"
                        + "\"numa\":0,\"healthy\":false,\"reason\":\"XID 79\",\"since\":\"2026-11-26T16:00:00Z\",\"xid\":79,"
                        + "\"recovery\":\"reset\",\"mode\":\"shim\",\"links\":{},"
                        + "\"heldBy\":[{\"pod\":\"a/b\",\"resource\":\"nvidia.com/gpu\",\"hami\":true}]}]}";
        String container = "\"namespace\":\"team\",\"pod\":\"train\",\"uid\":\"0a1b2c3d-0000-4000-8000-00000000000f\","
                + "\"container\":\"main\"";
        return Stream.of(
                new Parser("Inventory", node, Inventory::parse),
                new Parser(
                        "Vgpus", GPU + " memory=3000Mi cores=30 policy=elastic compute-priority=low\n", Vgpus::parse),
                new Parser("Quantity", "12.5Gi", Quantity::parse),
                new Parser("HamiAllocation", GPU + ",NVIDIA,3000,30:" + GPU + ",NVIDIA,1,0:;", HamiAllocation::parse),
                new Parser(
                        "UsageReport",
                        "{\"at\":\"2026-11-26T20:00:00Z\",\"node\":\"n\",\"containers\":[{" + container
                                + ",\"gpu\":\"" + GPU + "\",\"chargedBytes\":1,\"peakBytes\":2,\"gpuSeconds\":0.5,"
                                + "\"throttledSeconds\":0.5,\"deniedAllocations\":0,\"processes\":1}],\"gpus\":[{\"gpu\":\""
                                + GPU + "\",\"usedBytes\":1,\"powerWatts\":2.5}],\"xids\":[{" + container
                                + ",\"gpu\":\"" + GPU + "\",\"number\":31,\"meaning\":\"m\"}],\"findings\":[{"
                                + container
                                + ",\"problem\":{\"kind\":\"LargeRegion\",\"bytes\":1,\"cut\":true}}],\"pods\":[\"a\"]}",
                        UsageReport::parse),
                new Parser(
                        "UsageHistory",
                        "{\"end\":\"2026-11-26T20:00:00Z\",\"stepSeconds\":1,\"gpu\":{\"usedMiB\":[1,null],"
                                + "\"utilizationPercent\":[0,100]},\"containers\":[{" + container
                                + ",\"chargedMiB\":[1,null],\"unattributedMiB\":[0,0],\"utilizationPercent\":[1,2],"
                                + "\"grantedMiB\":[],\"grantedPercent\":[],\"lentPercent\":[],\"borrowedPercent\":[]}],"
                                + "\"health\":[{\"at\":\"2026-11-26T20:00:00Z\",\"healthy\":false,\"reason\":\"r\"}]}",
                        UsageHistory::parse),
                new Parser(
                        "GpuRequest",
                        "30",
                        text -> GpuRequest.parse(
                                Map.of(Resources.VGPU, "1", Resources.MEMORY, text, Resources.CORES, text))),
                new Parser(
                        "ForeignResources",
                        "3",
                        text -> ForeignResources.toAliquot(
                                Map.of("aliyun.com/gpu-mem", text, "cpu", text),
                                Map.of(ForeignResources.ACK_GPU_COUNT_LABEL, text),
                                Compatibility.NONE,
                                PodDefaults.NONE)),
                annotation(Annotations.USE_GPU_MODEL, "A100,RTX*"),
                annotation(Annotations.AVOID_GPU_UUID, GPU + "," + GPU),
                annotation(Annotations.USE_GPU_INDEX, "0,1"),
                annotation(Annotations.PRIORITY, "low"),
                annotation(Annotations.NUMA, "required"),
                annotation("nvidia.com/use-gputype", "A100,NVIDIA-H100"),
                annotation("nvidia.com/use-gpuuuid", GPU),
                annotation("nvidia.com/nouse-gpuindexes", "0,3"),
                annotation("nvidia.com/numa-bind", "true"),
                annotation("hami.io/gpu-scheduler-policy", "binpack,numa"));
    }

    private static Parser annotation(String key, String example) {
        return new Parser(key, example, text -> HamiAnnotations.preferences(Map.of(key, text)));
    }

    @ParameterizedTest
    @MethodSource("parsers")
    void aDamagedTextIsReadOrRefused(Parser parser) {
        parser.parse().accept(parser.example());
        Randomly.times(2000, random -> {
            String text = damaged(random, parser.example());
            try {
                parser.parse().accept(text);
            } catch (FormatException e) {
                assertThat(String.valueOf(e.getMessage()).length()).isLessThan(1000);
            } catch (RuntimeException e) {
                throw new AssertionError(FormatException.quote(text), e);
            }
        });
    }

    @Test
    void aDamagedFileOfAContainerIsReadOrRefused() throws IOException {
        byte[] region = Files.readAllBytes(GOLDEN.resolve("region.bin"));
        byte[] agent = Files.readAllBytes(GOLDEN.resolve("agent.bin"));
        Randomly.times(500, random -> {
            parse(random, region, ParsersTest::readRegion);
            parse(random, agent, bytes -> AgentFile.parse(bytes).devices());
        });
    }

    /** A tree of the 8 MiB that a node could answer took more than the scheduler's heap. */
    @Test
    void aTextOfVeryManyValuesIsRefusedBeforeTheyAreKept() {
        for (String value : List.of("[],", "{},", "1,")) {
            String text = "{\"version\":1,\"gpus\":[" + value.repeat(300_000) + "1]}";
            assertThatThrownBy(() -> Inventory.parse(text))
                    .isInstanceOf(FormatException.class)
                    .hasMessageContaining("exceeds the maximum allowed");
        }
    }

    @Test
    void aSeriesOfVeryManyValuesIsRefusedBeforeTheyAreKept() {
        String text = "{\"end\":\"2026-11-26T20:00:00Z\",\"stepSeconds\":1,\"gpu\":{\"usedMiB\":["
                + "1,".repeat(300_000) + "1]}}";
        assertThatThrownBy(() -> UsageHistory.parse(text))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining("exceeds the maximum allowed");
    }

    private static void readRegion(byte[] bytes) {
        try {
            Region.read(
                    (part, at) -> {
                        int length = (int) Math.min(part.remaining(), bytes.length - at);
                        if (length > 0) {
                            part.put(bytes, (int) at, length);
                        }
                        return length > 0 ? length : -1;
                    },
                    ByteBuffer.allocate(Region.SIZE));
        } catch (IOException e) {
            // shorter than a region
        }
    }

    private static void parse(Random random, byte[] example, Consumer<byte[]> parse) {
        byte[] bytes =
                Arrays.copyOf(example, random.nextInt(10) == 0 ? random.nextInt(2 * example.length) : example.length);
        int changes = random.nextInt(200);
        for (int i = 0; i < changes && bytes.length > 0; i++) {
            // The first bytes say what the others are.
            int most = random.nextBoolean() ? Math.min(256, bytes.length) : bytes.length;
            bytes[random.nextInt(most)] = (byte) random.nextInt();
        }
        try {
            parse.accept(bytes);
        } catch (FormatException e) {
            // refused
        }
    }

    private static String damaged(Random random, String example) {
        var text = new StringBuilder(example);
        int changes = 1 + random.nextInt(4);
        for (int i = 0; i < changes; i++) {
            int from = random.nextInt(text.length() + 1);
            int to = Math.min(text.length(), from + random.nextInt(8));
            String piece = PIECES.get(random.nextInt(PIECES.size()));
            switch (random.nextInt(4)) {
                case 0 -> text.delete(from, to);
                case 1 -> text.replace(from, to, piece);
                case 2 -> text.insert(from, piece.repeat(1 + random.nextInt(100)));
                default -> text.insert(from, text.substring(from));
            }
        }
        return text.toString();
    }
}
