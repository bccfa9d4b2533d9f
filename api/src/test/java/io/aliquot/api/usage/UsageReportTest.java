package io.aliquot.api.usage;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.names.FormatException;
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
                            Optional.of(AT),
                            Optional.of(new UsageReport.Unlimited.Covered("/etc/aliquot"))),
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
                            Optional.empty(),
                            Optional.of(new UsageReport.Unlimited.WithoutShim()))),
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

    @Test
    void aReportIsReadAsItWasWritten() {
        assertThat(UsageReport.parse(REPORT.print())).isEqualTo(REPORT);
        assertThat(UsageHistory.parse(HISTORY.print())).isEqualTo(HISTORY);
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
    void aFindingIsReadAsItWasWritten() {
        var finding = Optional.of(new UsageReport.Unlimited.Covered("/etc/aliquot"));
        String text = REPORT.print()
                .replace("\"unlimited\":\"withoutShim\"", "\"unlimited\":\"covered\",\"coveredPath\":\"/etc/aliquot\"");

        UsageReport report = UsageReport.parse(text);

        assertThat(report.containers().get(1).unlimited()).isEqualTo(finding);
        assertThat(report.print()).isEqualTo(text);
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
                "\"version\":1 | \"version\":2 | expected version 1",
                "\"node\":\"node1\" | \"node\":\"\" | expected a node's name",
                "\"processes\":1 | \"processes\":\"1\" | expected a whole number processes",
                "\"at\":\"2026-11-26T20:00:00Z\" | \"at\":\"now\" | expected a time at",
                "\"namespace\":\"team\",\"pod\":\"train\" | \"namespace\":\"../x\",\"pod\":\"train\" | expected a namespace",
                "\"pod\":\"train\" | \"pod\":\"<script>\" | expected a pod",
                "\"gpu\":\"GPU-11111111 | \"gpu\":\"MPS-11111111 | expected a GPU's UUID",
                "\"/etc/aliquot\" | \"etc/aliquot\" | expected a path in a container",
                "\"/etc/aliquot\" | \"/etc/\\n\" | expected a path in a container",
                "\"coveredPath\" | \"path\" | expected the field coveredPath",
                "\"gpuSeconds\":1.5 | \"gpuSeconds\":[] | expected a number gpuSeconds"
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
        assertThat(UsageReport.parse(REPORT.print().replace("\"version\":1", "\"version\":1,\"new\":{}")))
                .isEqualTo(REPORT);
    }

    @Test
    void aReasonOfANewerVersionAndAnEarlierAgentsReportWithoutOneAreNoReason() {
        UsageReport newer = UsageReport.parse(REPORT.print().replace("\"covered\"", "\"new\""));
        UsageReport earlier = UsageReport.parse(REPORT.print().replace("\"unlimited\"", "\"unknown\""));

        assertThat(newer.containers().getFirst().unlimited()).isEmpty();
        assertThat(earlier.containers())
                .allSatisfy(use -> assertThat(use.unlimited()).isEmpty());
    }

    @Test
    void anEarlierAgentsHistoryHasNoneOfWhatWasGrantedAndLent() {
        UsageHistory earlier =
                UsageHistory.parse(HISTORY.print().replaceAll(",\"(granted|lent|borrowed)[A-Za-z]+\":\\[[0-9]+]", ""));

        assertThat(earlier.containers()).singleElement().satisfies(one -> {
            assertThat(one.utilizationPercent()).containsExactly(OptionalInt.of(50));
            assertThat(one.grantedPercent()).isEmpty();
            assertThat(one.lentPercent()).isEmpty();
        });
    }

    @Test
    void seriesThatAreTooLongAreRefused() {
        String values = String.join(",", Collections.nCopies(901, "1"));

        assertThatThrownBy(() -> UsageHistory.parse(HISTORY.print().replace("[null,2256]", "[" + values + "]")))
                .hasMessageContaining("at most 900 values of usedMiB");
        assertThatThrownBy(() -> UsageHistory.parse(HISTORY.print().replace("[null,2256]", "[1.5]")))
                .hasMessageContaining("whole numbers or null in usedMiB");
    }
}
