package io.aliquot.lab;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.opentest4j.TestAbortedException;

/**
 * What became of a test on a kind of node: a line of {@code lab/target/node-kinds.tsv}, to which each run of the lab's tests
 * appends. Of the lines about one test on one kind the last one holds.
 *
 * @param day in UTC
 * @param tests the simple name of the class that declares the test, so that a test that several classes inherit is one
 * @param test its method and, if it has several invocations, which one; empty for all tests of the class
 * @param reason why it was skipped, else empty
 */
record TestResult(LocalDate day, NodeKind kind, String tests, String test, Outcome outcome, String reason) {
    enum Outcome {
        PASSED,
        FAILED,
        SKIPPED
    }

    private static final Path FILE = Path.of("target", "node-kinds.tsv");
    private static final String ALL = "";

    /** Of a test that has just ended. */
    static TestResult of(ExtensionContext context, NodeKind kind) {
        Optional<Throwable> failure = context.getExecutionException();
        Optional<String> skipped =
                failure.filter(TestAbortedException.class::isInstance).map(aborted -> "" + aborted.getMessage());
        return new TestResult(
                LocalDate.now(ZoneOffset.UTC),
                kind,
                context.getRequiredTestMethod().getDeclaringClass().getSimpleName(),
                context.getUniqueId().replaceFirst(".*/\\[class:[^\\]]*\\]/", ""),
                failure.isEmpty() ? Outcome.PASSED : skipped.isPresent() ? Outcome.SKIPPED : Outcome.FAILED,
                skipped.orElse(""));
    }

    /**
     * Of all tests of a class, on the kinds of nodes that it does not run on. {@link VirtualMachineIT} has all that runs in the
     * virtual machine.
     */
    static Stream<TestResult> skipped(Class<?> tests, NodeKind.Required required) {
        return Arrays.stream(NodeKind.values())
                .filter(kind -> kind != NodeKind.VIRTUAL_MACHINE
                        && !List.of(required.value()).contains(kind))
                .map(kind -> new TestResult(
                        LocalDate.now(ZoneOffset.UTC),
                        kind,
                        tests.getSimpleName(),
                        ALL,
                        Outcome.SKIPPED,
                        required.because()));
    }

    /** All results of this checkout, the oldest first; none if no test has run since its last {@code clean}. */
    static List<TestResult> read() {
        try (Stream<String> lines = Files.exists(FILE) ? Files.lines(FILE) : Stream.empty()) {
            return lines.map(TestResult::parse).toList();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static TestResult parse(String line) {
        String[] fields = line.split("\t", -1);
        if (fields.length != 6) {
            throw new IllegalArgumentException(
                    "expected 6 fields in each line of lab/" + FILE + ", found: " + line + "; remove the file");
        }
        return new TestResult(
                LocalDate.parse(fields[0]),
                NodeKind.valueOf(fields[1]),
                fields[2],
                fields[3],
                Outcome.valueOf(fields[4]),
                fields[5]);
    }

    /** One write, so that classes that run at the same time do not mix their lines. */
    void append() {
        String line = Stream.of(day, kind, tests, test, outcome, reason)
                        .map(field -> field.toString().replaceAll("\\s+", " "))
                        .reduce((left, right) -> left + "\t" + right)
                        .orElseThrow()
                + "\n";
        try {
            Files.createDirectories(FILE.getParent());
            Files.write(
                    FILE, line.getBytes(StandardCharsets.UTF_8), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
