package io.aliquot.api.usage;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Held;
import io.aliquot.api.pods.Priority;
import java.time.Instant;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class UsageReportTest {
    private static final String GPU = "GPU-11111111-2222-3333-4444-555555555555";
    private static final Instant AT = Instant.parse("2026-11-26T20:00:00Z");
    private static final PodContainer MAIN =
            new PodContainer("team", "train", "0a1b2c3d-0000-4000-8000-00000000000f", "main");

    private static final UsageReport REPORT = new UsageReport(
            AT,
            "node1",
            List.of(
                    new UsageReport.OfContainer(
                            MAIN,
                            GPU,
                            OptionalLong.of(2_000),
                            OptionalLong.of(256),
                            OptionalLong.of(2_256),
                            3_000,
                            1.5,
                            OptionalInt.of(37),
                            OptionalInt.of(0),
                            OptionalInt.of(12),
                            0.25,
                            4,
                            1,
                            Optional.of(AT)),
                    new UsageReport.OfContainer(
                            new PodContainer("team", "init", "", "prepare"),
                            GPU,
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
                            Optional.empty())),
            List.of(new UsageReport.OfGpu(
                    GPU,
                    OptionalLong.of(5_000),
                    OptionalLong.of(0),
                    OptionalInt.of(40),
                    OptionalInt.empty(),
                    OptionalDouble.of(250.5))),
            List.of(new UsageReport.ApplicationXid(GPU, 31, "memory page fault", MAIN)),
            List.of(
                    new UsageReport.Finding(
                            new PodContainer("team", "train", "", "main"),
                            new UsageReport.Problem.LargeRegion(1L << 40, true)),
                    new UsageReport.Finding(MAIN, new UsageReport.Problem.LargeRegion(600_000, false)),
                    new UsageReport.Finding(MAIN, new UsageReport.Problem.LimitsNotSeen("/etc/ld.so.preload")),
                    new UsageReport.Finding(MAIN, new UsageReport.Problem.WithoutShim(GPU)),
                    new UsageReport.Finding(MAIN, new UsageReport.Problem.ImageWithoutLoader()),
                    new UsageReport.Finding(MAIN, new UsageReport.Problem.GpuNotSeen()),
                    new UsageReport.Finding(MAIN, new UsageReport.Problem.ProcessTableFull()),
                    new UsageReport.Finding(MAIN, new UsageReport.Problem.ClosedFile())),
            Optional.of(Set.of(MAIN.uid(), "0f".repeat(16))));

    private static final UsageHistory HISTORY = new UsageHistory(
            AT,
            1,
            new UsageHistory.OfGpu(
                    List.of(OptionalInt.empty(), OptionalInt.of(2256)), List.of(OptionalInt.of(0), OptionalInt.of(50))),
            List.of(new UsageHistory.OfContainer(
                    MAIN,
                    List.of(OptionalInt.of(2000)),
                    List.of(OptionalInt.empty()),
                    List.of(OptionalInt.of(50)),
                    List.of(OptionalInt.of(3000)),
                    List.of(OptionalInt.of(30)),
                    List.of(OptionalInt.of(0)),
                    List.of(OptionalInt.of(20)))),
            List.of(
                    new UsageHistory.HealthChange(AT, false, "XID 48"),
                    new UsageHistory.HealthChange(AT.plusSeconds(60), true, "")));

    private static final NodeAllocation ALLOCATION = new NodeAllocation(
            List.of(new NodeAllocation.OfGpu(
                    GPU,
                    "NVIDIA H200",
                    new NodeAllocation.Amount(143_771, 100, 16),
                    new NodeAllocation.Amount(3000, 30, 1),
                    true)),
            List.of(new NodeAllocation.Limit(MAIN, GPU, 3000, 30, CorePolicy.ELASTIC, Priority.HIGH, Held.WHOLE_CARD)),
            List.of(new NodeAllocation.OfPod("team", "train", 3000, 30)));

    @Test
    void aReportIsReadAsItWasWritten() {
        assertThat(UsageReport.parse(REPORT.print())).isEqualTo(REPORT);
        assertThat(UsageHistory.parse(HISTORY.print())).isEqualTo(HISTORY);
        assertThat(NodeAllocation.parse(ALLOCATION.print())).isEqualTo(ALLOCATION);
    }

    /** No pods, or no answer: only the first proves that a pod is gone. */
    @Test
    void anEmptyListOfPodsIsNotAnAbsentOne() {
        UsageReport none = REPORT.withPods(Optional.of(Set.of()));
        UsageReport unknown = REPORT.withPods(Optional.empty());

        assertThat(UsageReport.parse(none.print())).isEqualTo(none);
        assertThat(UsageReport.parse(unknown.print())).isEqualTo(unknown).isNotEqualTo(none);
    }

    @Test
    void anUnknownFigureIsAbsent() {
        assertThat(REPORT.print())
                .contains("\"container\":\"prepare\",\"gpu\":\"" + GPU + "\",\"peakBytes\":0")
                .doesNotContain("temperatureCelsius", "null");
        assertThat(HISTORY.print()).contains("\"usedMiB\":[null,2256]");
    }

    @Test
    void aContainerIsFoundByItsPodsUid() {
        assertThat(REPORT.find(MAIN.uid(), "main", GPU))
                .contains(REPORT.containers().getFirst());
        assertThat(REPORT.find("another", "main", GPU)).isEmpty();
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '`',
            value = {
                "\"node\":\"node1\" | \"node\":\"\" | expected a node's name",
                "\"node\":\"node1\" | \"nude\":\"node1\" | node",
                "\"processes\":1 | \"processes\":\"1\" | containers\"]->java.util.ArrayList[0]->",
                "\"processes\":1 | \"process\":1 | processes",
                "\"processes\":1 | \"processes\":1.5 | processes",
                "\"at\":\"2026-11-26T20:00:00Z\" | \"at\":\"now\" | UsageReport[\"at\"]",
                "\"namespace\":\"team\",\"pod\":\"train\" | \"namespace\":\"../x\",\"pod\":\"train\" | expected a namespace",
                "\"pod\":\"train\" | \"pod\":\"<script>\" | expected a pod",
                "\"gpu\":\"GPU-11111111 | \"gpu\":\"MPS-11111111 | expected a GPU's UUID",
                "\"/etc/ld.so.preload\" | \"etc/aliquot\" | expected a path in a container",
                "\"/etc/ld.so.preload\" | \"/etc/\\n\" | expected a path in a container",
                "\"path\" | \"place\" | path",
                "\"gpuSeconds\":1.5 | \"gpuSeconds\":[] | gpuSeconds"
            })
    void aReportWithAWrongFieldIsRefusedWithASentence(String right, String wrong, String error) {
        String text = REPORT.print().replace(right, wrong);

        assertThat(text).isNotEqualTo(REPORT.print());
        assertThatThrownBy(() -> UsageReport.parse(text))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining(error);
    }

    @Test
    void aFieldOfANewerVersionIsIgnored() {
        assertThat(UsageReport.parse(REPORT.print().replace("{\"at\"", "{\"new\":{},\"at\"")))
                .isEqualTo(REPORT);
    }

    @Test
    void aFindingOfANewerVersionIsAnother() {
        UsageReport newer = UsageReport.parse(REPORT.print().replace("\"GpuNotSeen\"", "\"New\",\"detail\":[1]"));

        assertThat(newer.findings()).contains(new UsageReport.Finding(MAIN, new UsageReport.Problem.Other()));
    }

    @Test
    void seriesThatAreTooLongAreRefused() {
        String values = String.join(",", Collections.nCopies(901, "1"));

        assertThatThrownBy(() -> UsageHistory.parse(HISTORY.print().replace("[null,2256]", "[" + values + "]")))
                .hasMessageContaining("at most 900 values");
        assertThatThrownBy(() -> UsageHistory.parse(HISTORY.print().replace("[null,2256]", "[1.5]")))
                .hasMessageContaining("usedMiB");
    }
}
