package io.aliquot.lab;

import static java.util.stream.Collectors.counting;
import static java.util.stream.Collectors.groupingBy;
import static java.util.stream.Collectors.joining;

import io.aliquot.lab.TestResult.Outcome;
import java.util.Arrays;
import java.util.Collection;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.function.Predicate;
import java.util.stream.Stream;

/**
 * The table of docs/support-matrix.md, between two markers: classes of tests by {@linkplain NodeKind kinds} of node. A cell says
 * how many tests passed, failed and were skipped, and on which day the oldest of these results was found. A cell without a newer
 * result stays as it is, with its day.
 */
final class SupportMatrix {
    private static final String BEGIN =
            "<!-- What ran where: CONTRIBUTING.md says how the tests write these lines. -->\n";
    private static final String END = "<!-- End of what ran where -->\n";
    private static final String NONE = "–";
    private static final String FIRST = "tests";

    private final SortedMap<String, Map<NodeKind, String>> rows = new TreeMap<>();

    /** Reads the table of a document. Kinds that have no column in it yet have no results. */
    static SupportMatrix of(String document) {
        var matrix = new SupportMatrix();
        List<List<String>> lines =
                between(document).lines().map(SupportMatrix::cells).toList();
        for (NodeKind kind : NodeKind.values()) {
            int column = lines.isEmpty() ? -1 : lines.getFirst().indexOf(kind.title);
            lines.stream()
                    .skip(2)
                    .filter(row -> column > 0 && column < row.size())
                    .forEach(row -> matrix.put(row.getFirst().replace("`", ""), kind, row.get(column)));
        }
        return matrix;
    }

    private static List<String> cells(String line) {
        return Stream.of(line.substring(2, line.length() - 2).split(" \\| ", -1))
                .map(String::strip)
                .toList();
    }

    private static List<String> header() {
        return Stream.concat(Stream.of(FIRST), Arrays.stream(NodeKind.values()).map(kind -> kind.title))
                .toList();
    }

    private void put(String tests, NodeKind kind, String cell) {
        if (!cell.equals(NONE)) {
            rows.computeIfAbsent(tests, key -> new EnumMap<>(NodeKind.class)).put(kind, cell);
        }
    }

    /** The names of classes. */
    Collection<String> tests() {
        return rows.keySet();
    }

    /** Removes the rows of other classes. */
    void retain(Predicate<String> tests) {
        rows.keySet().removeIf(tests.negate());
    }

    /** Replaces the cells that these results are about. */
    void update(List<TestResult> results) {
        record Cell(String tests, NodeKind kind) {}
        var last = new LinkedHashMap<Cell, Map<String, TestResult>>();
        for (TestResult result : results) {
            last.computeIfAbsent(new Cell(result.tests(), result.kind()), key -> new TreeMap<>())
                    .put(result.test(), result);
        }
        last.forEach((cell, tests) -> put(cell.tests(), cell.kind(), cell(tests.values())));
    }

    private static String cell(Collection<TestResult> tests) {
        Map<Outcome, Long> counts = tests.stream().collect(groupingBy(TestResult::outcome, counting()));
        String reasons = tests.stream()
                .map(TestResult::reason)
                .filter(reason -> !reason.isEmpty())
                .distinct()
                .collect(joining("; "));
        if (!counts.containsKey(Outcome.PASSED) && !counts.containsKey(Outcome.FAILED)) {
            return "skipped: " + reasons;
        }
        return Arrays.stream(Outcome.values())
                        .filter(counts::containsKey)
                        .map(outcome ->
                                counts.get(outcome) + " " + outcome.name().toLowerCase(Locale.ROOT))
                        .collect(joining(", "))
                + (reasons.isEmpty() ? "" : ": " + reasons)
                + " ("
                + tests.stream().map(TestResult::day).sorted().findFirst().orElseThrow()
                + ")";
    }

    /** The document with this table. */
    String in(String document) {
        return document.replace(BEGIN + between(document) + END, BEGIN + print() + END);
    }

    private String print() {
        Stream<List<String>> body = rows.entrySet().stream()
                .map(row -> Stream.concat(
                                Stream.of("`" + row.getKey() + "`"),
                                Arrays.stream(NodeKind.values())
                                        .map(kind -> row.getValue().getOrDefault(kind, NONE)))
                        .toList());
        List<String> line = header().stream().map(title -> "---").toList();
        return Stream.concat(Stream.of(header(), line), body)
                .map(cells -> "| " + String.join(" | ", cells) + " |\n")
                .collect(joining());
    }

    private static String between(String document) {
        int begin = document.indexOf(BEGIN);
        int end = document.indexOf(END);
        if (begin < 0 || end < begin) {
            throw new IllegalArgumentException("expected the lines " + BEGIN + "and " + END + "in the document");
        }
        return document.substring(begin + BEGIN.length(), end);
    }
}
