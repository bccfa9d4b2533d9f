package io.aliquot.scheduler.simulate;

import io.aliquot.scheduler.simulate.Report.Figures;
import io.aliquot.scheduler.simulate.Report.Result;
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
import java.util.stream.Collectors;
import java.util.stream.Stream;
import tools.jackson.databind.json.JsonMapper;

/** The forms that a report is written in. */
final class Output {
    private static final String TEMPLATE = "report.html";
    private static final JsonMapper JSON = JsonMapper.builder().build();

    private Output() {}

    /** A line for each workload, for a terminal. */
    static void table(Report report, PrintWriter out) {
        out.println(caption(report));
        List<String> policies =
                report.byWorkload().get(0).stream().map(Result::policy).toList();
        out.printf("%-20s", "workload");
        policies.forEach(policy -> out.printf(" %16s", policy));
        out.println();
        lines(report, out, result -> figures(report, result.mean()));
        out.flush();
    }

    /** What a decision cost, in the table's lines; apart from it, since no two runs tell the same. */
    static void decisions(Report report, PrintWriter out) {
        out.println("CPU time of a decision, milliseconds, p50 / p99");
        lines(
                report,
                out,
                result -> pair(
                        result.mean().decisionMillis().p50(),
                        result.mean().decisionMillis().p99()));
        out.flush();
    }

    private static void lines(Report report, PrintWriter out, Function<Result, String> cell) {
        for (List<Result> workload : report.byWorkload()) {
            out.printf("%-20s", workload.get(0).workload());
            workload.forEach(result -> out.printf(" %16s", cell.apply(result)));
            out.println();
        }
    }

    private static String caption(Report report) {
        int seeds = report.input().seeds();
        return (report.input().lifetimes() > 0
                        ? "GPU allocated, and stranded, % of what there is, in the mean over time; "
                        : "GPU allocated, % of what there is, once 100 % of it were asked for and after the last pod; ")
                + (seeds == 1 ? "seed 0" : "mean of " + seeds + " seeds");
    }

    private static String figures(Report report, Figures figures) {
        Double atCapacity = figures.atCapacity();
        return report.input().lifetimes() > 0
                ? pair(figures.allocated(), figures.stranded())
                : (atCapacity == null ? "    –" : decimal(atCapacity)) + " / " + decimal(figures.allocated());
    }

    private static String pair(double one, double other) {
        return decimal(one) + " / " + decimal(other);
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
                                "stranded",
                                "pods",
                                "seconds",
                                "decision_p50_ms",
                                "decision_p99_ms"),
                        Stream.of(Failure.values()).map(failure -> "failed_" + failure))
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
        Double atCapacity = figures.atCapacity();
        return Stream.concat(
                        Stream.of(
                                result.workload(),
                                result.policy(),
                                seed,
                                atCapacity == null ? "" : atCapacity,
                                figures.allocated(),
                                figures.stranded(),
                                (long) figures.pods(),
                                figures.seconds(),
                                figures.decisionMillis().p50(),
                                figures.decisionMillis().p99()),
                        Stream.of(Failure.values())
                                .map(failure -> Math.round(figures.failed().getOrDefault(failure, 0.0))))
                .map(value -> quoted(value.toString()))
                .collect(Collectors.joining(","));
    }

    /** As RFC 4180 has it. */
    private static String quoted(String cell) {
        return cell.matches("[^,\"\r\n]*") ? cell : "\"" + cell.replace("\"", "\"\"") + "\"";
    }

    /** One page with everything in it, that needs no network; its table can be read without scripts. */
    static void html(Report report, Path file) {
        // A script element ends at the first "</", whatever that stands in (HTML, "Restrictions for contents of script
        // elements").
        String data = JSON.writeValueAsString(report).replace("<", "\\u003c");
        write(file, template().replace("{{table}}", rows(report)).replace("{{data}}", data));
    }

    private static String rows(Report report) {
        var rows = new StringBuilder();
        rows.append("<caption>").append(escaped(caption(report))).append("</caption>");
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
                    .mapToDouble(result -> result.mean().allocated())
                    .max()
                    .orElseThrow();
            for (Result result : workload) {
                rows.append(result.mean().allocated() == most ? "<td class=\"best\">" : "<td>")
                        .append(escaped(figures(report, result.mean())))
                        .append("</td>");
            }
            rows.append("</tr>");
        }
        return rows.append("</tbody>").toString();
    }

    private static String escaped(String text) {
        return text.replace("&", "&amp;")
                .replace("<", "&lt;")
                .replace(">", "&gt;")
                .replace("\"", "&quot;")
                .replace("{", "&#123;");
    }

    private static String template() {
        try (InputStream in = Objects.requireNonNull(Output.class.getResourceAsStream(TEMPLATE), TEMPLATE)) {
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
