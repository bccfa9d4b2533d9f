package io.aliquot.lab.chart;

import io.aliquot.lab.chart.Chart.Rendered;
import io.fabric8.kubernetes.api.model.ConfigMap;
import java.util.List;
import java.util.Map;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The chart's Grafana dashboards. */
public final class Dashboards {
    private static final JsonMapper JSON = new JsonMapper();

    private Dashboards() {}

    /** As the chart renders them, the cluster's first. */
    static List<JsonNode> all() {
        List<Rendered> rendered = Chart.renderWith(Map.of("metrics.dashboards.enabled", true));
        return Chart.the(rendered, ConfigMap.class, "aliquot-dashboards").getData().values().stream()
                .map(JSON::readTree)
                .toList();
    }

    /** The panels' queries as they are written. */
    static List<String> expressions(JsonNode dashboard) {
        return dashboard.findValuesAsString("expr");
    }

    /** All queries as Grafana sends them for all values of the variables, with this range for rates and for totals. */
    public static List<String> queries(String range) {
        return all().stream()
                .flatMap(dashboard -> expressions(dashboard).stream())
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
