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
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.function.Function;
import java.util.function.ToDoubleFunction;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.json.JsonMapper;

/** The forms that a report is written in. */
final class ReportWriter {
    private static final String TEMPLATE = "report.html";
    private static final JsonMapper JSON = JsonMapper.builder().build();

    private ReportWriter() {}

    /**
     * A table with a line for each workload.
     *
     * @param rank what the best policy of a line has most of
     */
    private record Table(String caption, Function<Figures, String> cell, ToDoubleFunction<Figures> rank) {}

    private static List<Table> tables(Report report) {
        Report.Input input = report.input();
        boolean departures = input.lifetimes() > 0;
        String when = departures
                ? ", % of what there is, in the mean over time"
                : ", % of what there is, once 100 % of it were asked for and after the last pod";
        String mean = input.seeds() == 1 ? "; seed 0" : "; mean of " + input.seeds() + " seeds";
        var allocated = new Table(
                (departures ? "GPU allocated, and stranded" : "GPU allocated") + when + mean,
                figures -> departures
                        ? pair(figures.allocated(), figures.stranded())
                        : pair(figures.atCapacity(), figures.allocated()),
                Figures::allocated);
        // Where all are alike it would say the same again.
        return input.alike()
                ? List.of(allocated)
                : List.of(
                        allocated,
                        new Table(
                                "GPU that the placed pods asked for, by the mean card" + when + mean,
                                figures -> departures
                                        ? decimal(figures.placed())
                                        : pair(figures.placedAtCapacity(), figures.placed()),
                                Figures::placed));
    }

    /** A line for each workload, for a terminal. */
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

    /** What a decision cost, in the table's lines; apart from it, since no two runs tell the same. */
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

    /** One is missing where it isn't known. */
    private static String pair(@Nullable Double one, double other) {
        return (one == null ? "    –" : decimal(one)) + " / " + decimal(other);
    }

    private static String decimal(double value) {
        return String.format(Locale.ROOT, "%5.2f", value);
    }

    /** Everything. */
    static void json(Report report, Path file) {
        write(file, JSON.writerWithDefaultPrettyPrinter().writeValueAsString(report) + "\n");
    }

    /** A line for each replay. */
    static void csv(Report report, Path file) {
        List<String> lines = new ArrayList<>();
        lines.add(Stream.concat(
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
                        Stream.of(UnschedulableReason.values()).map(failure -> "failed_" + failure))
                .collect(Collectors.joining(",")));
        for (Result result : report.results()) {
            for (int seed = 0; seed < result.replays().size(); seed++) {
                lines.add(line(result, seed));
            }
        }
        write(file, String.join("\n", lines) + "\n");
    }

    private static String line(Result result, int seed) {
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
                                .map(failure -> Math.round(figures.failed().getOrDefault(failure, 0.0))))
                .map(value -> quoted(value.toString()))
                .collect(Collectors.joining(","));
    }

    private static Object orEmpty(@Nullable Double figure) {
        return figure == null ? "" : figure;
    }

    /** As RFC 4180 has it. */
    private static String quoted(String cell) {
        return cell.matches("[^,\"\r\n]*") ? cell : "\"" + cell.replace("\"", "\"\"") + "\"";
    }

    /** One page with everything in it, that needs no network; its table can be read without scripts. */
    static void html(Report report, Path file) {
        // A script element ends at the first "</", whatever that stands in (HTML, "Restrictions for contents of script
        // elements").
        String data = JSON.writeValueAsString(report.page()).replace("<", "\\u003c");
        write(
                file,
                template()
                        .replace(
                                "{{tables}}",
                                tables(report).stream()
                                        .map(table -> markup(report, table))
                                        .collect(Collectors.joining()))
                        .replace("{{data}}", data));
    }

    private static String markup(Report report, Table table) {
        var rows = new StringBuilder("<table>");
        rows.append("<caption>").append(escaped(table.caption())).append("</caption>");
        rows.append("<thead><tr><th scope=\"col\">workload</th>");
        for (Result result : report.byWorkload().get(0)) {
            rows.append("<th scope=\"col\">").append(escaped(result.policy())).append("</th>");
        }
        rows.append("</tr></thead><tbody>");
        for (List<Result> workload : report.byWorkload()) {
            rows.append("<tr><th scope=\"row\">")
                    .append(escaped(workload.get(0).workload()))
                    .append("</th>");
            double most = workload.stream()
                    .mapToDouble(result -> table.rank().applyAsDouble(result.mean()))
                    .max()
                    .orElseThrow();
            for (Result result : workload) {
                rows.append(table.rank().applyAsDouble(result.mean()) == most ? "<td class=\"best\">" : "<td>")
                        .append(escaped(table.cell().apply(result.mean())))
                        .append("</td>");
            }
            rows.append("</tr>");
        }
        return rows.append("</tbody></table>").toString();
    }

    private static String escaped(String text) {
        return text.replace("&", "&amp;")
                .replace("<", "&lt;")
                .replace(">", "&gt;")
                .replace("\"", "&quot;")
                .replace("{", "&#123;");
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
            throw new TraceException("can't write " + file + ": " + e, e);
        }
    }
}
