package io.aliquot.simulator;

import io.aliquot.simulator.Report.Figures;
import io.aliquot.simulator.Report.Result;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintWriter;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.function.Function;
import java.util.stream.Stream;
import org.apache.commons.csv.CSVFormat;
import org.apache.commons.csv.CSVPrinter;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.json.JsonMapper;

/** Writes a report as text, JSON, CSV and HTML. */
final class ReportWriter {
    private static final String TEMPLATE = "report.html";
    private static final JsonMapper JSON = JsonMapper.builder().build();
    private static final CSVFormat CSV =
            CSVFormat.RFC4180.builder().setRecordSeparator('\n').get();

    private ReportWriter() {}

    /** A table with a line per workload and a column per policy. */
    private record Table(String caption, Function<Figures, String> cell) {}

    // report.html has the same tables.
    private static List<Table> tables(Report report) {
        Report.Input input = report.input();
        boolean departures = input.lifetimes() > 0;
        String when = departures
                ? ", % of capacity, mean over time"
                : ", % of capacity, when 100 % of it were requested and after the last pod";
        String mean = input.seeds() == 1 ? "; seed 0" : "; mean of " + input.seeds() + " seeds";
        var allocated = new Table(
                (departures ? "GPU allocated, and stranded" : "GPU allocated") + when + mean,
                figures -> departures
                        ? pair(figures.allocated(), figures.stranded())
                        : pair(figures.atCapacity(), figures.allocated()));
        // On GPUs of equal memory the second table would repeat the first.
        return input.alike()
                ? List.of(allocated)
                : List.of(
                        allocated,
                        new Table(
                                "GPU that the placed pods request, measured by the mean GPU" + when + mean,
                                figures -> departures
                                        ? decimal(figures.placed())
                                        : pair(figures.placedAtCapacity(), figures.placed())));
    }

    /** Prints the tables for a terminal. */
    static void table(Report report, PrintWriter out) {
        for (Table table : tables(report)) {
            out.println(table.caption());
            out.printf("%-20s", "workload");
            report.byWorkload().get(0).forEach(result -> out.printf(" %16s", result.policy()));
            out.println();
            lines(report, out, table.cell());
        }
        out.flush();
    }

    /** Prints the cost of a decision apart from the tables: it differs between runs. */
    static void decisions(Report report, PrintWriter out) {
        out.println("CPU time of a decision, milliseconds, p50 / p99");
        lines(
                report,
                out,
                figures -> pair(
                        figures.decisionMillis().p50(), figures.decisionMillis().p99()));
        out.flush();
    }

    private static void lines(Report report, PrintWriter out, Function<Figures, String> cell) {
        for (List<Result> workload : report.byWorkload()) {
            out.printf("%-20s", workload.get(0).workload());
            workload.forEach(result -> out.printf(" %16s", cell.apply(result.mean())));
            out.println();
        }
    }

    /** A dash stands for an unknown first value. */
    private static String pair(@Nullable Double one, double other) {
        return (one == null ? "    –" : decimal(one)) + " / " + decimal(other);
    }

    private static String decimal(double value) {
        return String.format(Locale.ROOT, "%5.2f", value);
    }

    /** Writes the whole report. */
    static void json(Report report, Path file) {
        write(file, JSON.writerWithDefaultPrettyPrinter().writeValueAsString(report) + "\n");
    }

    /** Writes a line per replay (RFC 4180). */
    static void csv(Report report, Path file) {
        var text = new StringBuilder();
        try (var csv = new CSVPrinter(text, CSV)) {
            csv.printRecord(Stream.concat(
                    Stream.of(
                            "workload",
                            "policy",
                            "seed",
                            "allocated_at_capacity",
                            "allocated",
                            "placed_at_capacity",
                            "placed",
                            "stranded",
                            "pods",
                            "seconds",
                            "decision_p50_ms",
                            "decision_p99_ms"),
                    Stream.of(UnschedulableReason.values()).map(reason -> "failed_" + reason)));
            for (Result result : report.results()) {
                for (int seed = 0; seed < result.replays().size(); seed++) {
                    csv.printRecord(cells(result, seed));
                }
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        write(file, text.toString());
    }

    private static Stream<Object> cells(Result result, int seed) {
        Figures figures = result.replays().get(seed);
        return Stream.concat(
                Stream.of(
                        result.workload(),
                        result.policy(),
                        seed,
                        orEmpty(figures.atCapacity()),
                        figures.allocated(),
                        orEmpty(figures.placedAtCapacity()),
                        figures.placed(),
                        figures.stranded(),
                        (long) figures.pods(),
                        figures.seconds(),
                        figures.decisionMillis().p50(),
                        figures.decisionMillis().p99()),
                Stream.of(UnschedulableReason.values())
                        .map(reason -> Math.round(figures.failed().getOrDefault(reason, 0.0))));
    }

    private static Object orEmpty(@Nullable Double figure) {
        return figure == null ? "" : figure;
    }

    /** Writes a page that needs no network: a template with the report as JSON, which the page's script renders. */
    static void html(Report report, Path file) {
        // A script element ends at the first "</", even within a string (HTML, "Restrictions for contents of script
        // elements").
        String data = JSON.writeValueAsString(report.page()).replace("<", "\\u003c");
        write(file, template().replace("{{data}}", data));
    }

    private static String template() {
        try (InputStream in = Objects.requireNonNull(ReportWriter.class.getResourceAsStream(TEMPLATE), TEMPLATE)) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void write(Path file, String text) {
        try {
            Files.writeString(file, text);
        } catch (IOException e) {
            throw new TraceException("cannot write " + file + ": " + e, e);
        }
    }
}
