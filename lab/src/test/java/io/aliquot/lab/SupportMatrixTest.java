package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.lab.TestResult.Outcome;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDate;
import java.util.List;
import org.junit.jupiter.api.Test;

/**
 * That the table of what ran where is about the tests and kinds of node that there are. With {@code -Daliquot.matrix=write} it
 * first takes up the results of the checkout's runs.
 */
class SupportMatrixTest {
    private static final Path DOCUMENT = Path.of("..", "docs", "support-matrix.md");
    private static final String EMPTY = """
            # Before
            <!-- What ran where: CONTRIBUTING.md says how the tests write these lines. -->
            <!-- End of what ran where -->
            after
            """;
    private static final LocalDate FIRST_DAY = LocalDate.of(2026, 11, 29);
    private static final LocalDate SECOND_DAY = LocalDate.of(2026, 11, 30);

    @Test
    void theTableNamesAllKindsAndOnlyTestsThatExist() throws IOException {
        String document = Files.readString(DOCUMENT);
        if ("write".equals(System.getProperty("aliquot.matrix"))) {
            SupportMatrix matrix = SupportMatrix.of(document);
            matrix.update(TestResult.read());
            matrix.retain(SupportMatrixTest::exists);
            document = matrix.in(document);
            Files.writeString(DOCUMENT, document);
        }

        SupportMatrix matrix = SupportMatrix.of(document);

        assertThat(matrix.tests()).contains("GpuIsolation").allMatch(SupportMatrixTest::exists);
        assertThat(matrix.in(document))
                .as("as -Daliquot.matrix=write writes it")
                .isEqualTo(document);
    }

    private static boolean exists(String tests) {
        return Files.exists(Path.of("src/test/java/io/aliquot/lab", tests + ".java"));
    }

    @Test
    void theLastResultOfATestOnAKindCountsAndTheDayIsOfTheOldest() {
        String document = updated(
                EMPTY,
                result(FIRST_DAY, NodeKind.CDI, "one", Outcome.PASSED, ""),
                result(FIRST_DAY, NodeKind.CDI, "two", Outcome.FAILED, ""),
                result(FIRST_DAY, NodeKind.CDI, "three", Outcome.PASSED, ""),
                result(SECOND_DAY, NodeKind.CDI, "two", Outcome.PASSED, ""),
                result(SECOND_DAY, NodeKind.CDI, "three", Outcome.SKIPPED, "no browser"),
                result(SECOND_DAY, NodeKind.RUNTIME_CLASS, "one", Outcome.FAILED, ""),
                result(SECOND_DAY, NodeKind.DEFAULT_RUNTIME, "", Outcome.SKIPPED, "it needs CDI"));

        assertThat(document.lines())
                .containsExactly(
                        "# Before",
                        "<!-- What ran where: CONTRIBUTING.md says how the tests write these lines. -->",
                        "| tests | default runtime | RuntimeClass | CDI | virtual machine |",
                        "| --- | --- | --- | --- | --- |",
                        "| `SomeIT` | skipped: it needs CDI | 1 failed (2026-11-30)"
                                + " | 2 passed, 1 skipped: no browser (2026-11-29) | – |",
                        "<!-- End of what ran where -->",
                        "after");
    }

    @Test
    void aCellWithoutANewResultKeepsItsDay() {
        String before = updated(EMPTY, result(FIRST_DAY, NodeKind.VIRTUAL_MACHINE, "one", Outcome.PASSED, ""));

        assertThat(updated(before, result(SECOND_DAY, NodeKind.CDI, "one", Outcome.PASSED, "")))
                .contains("| `SomeIT` | – | – | 1 passed (2026-11-30) | 1 passed (2026-11-29) |");
    }

    @Test
    void aKindThatTheTableLacksGetsAColumn() {
        String before = updated(EMPTY, result(FIRST_DAY, NodeKind.VIRTUAL_MACHINE, "one", Outcome.PASSED, ""))
                .replace(" RuntimeClass |", "")
                .replace("| `SomeIT` | – |", "| `SomeIT` |");

        assertThat(updated(before))
                .contains(
                        "| tests | default runtime | RuntimeClass |",
                        "| `SomeIT` | – | – | – | 1 passed (2026-11-29) |");
    }

    private static String updated(String document, TestResult... results) {
        SupportMatrix matrix = SupportMatrix.of(document);
        matrix.update(List.of(results));
        return matrix.in(document);
    }

    private static TestResult result(LocalDate day, NodeKind kind, String test, Outcome outcome, String reason) {
        return new TestResult(day, kind, "SomeIT", test, outcome, reason);
    }
}
