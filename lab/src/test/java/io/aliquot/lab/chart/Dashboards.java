package io.aliquot.lab.chart;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The chart's Grafana dashboards. */
public final class Dashboards {
    private static final JsonMapper JSON = new JsonMapper();

    private Dashboards() {}

    static List<Path> files() {
        try (Stream<Path> files = Files.list(Chart.FOLDER.resolve("dashboards"))) {
            return files.sorted().toList();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static JsonNode read(Path file) {
        try {
            return JSON.readTree(Files.readString(file));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** The panels' queries as they are written. */
    static List<String> expressions(JsonNode dashboard) {
        return dashboard.findValuesAsString("expr");
    }

    /** All queries as Grafana sends them for all values of the variables, with this range for rates and for totals. */
    public static List<String> queries(String range) {
        return files().stream()
                .flatMap(file -> expressions(read(file)).stream())
                .map(expression -> query(expression, range))
                .toList();
    }

    static String query(String expression, String range) {
        return expression
                .replace("$__rate_interval", range)
                .replace("$__range", range)
                .replaceAll("\\$[a-z]+", ".+");
    }
}
