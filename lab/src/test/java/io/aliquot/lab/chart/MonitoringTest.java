package io.aliquot.lab.chart;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.marcnuri.helm.Helm;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Named;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The chart's alerts, recording rules and dashboards. PrometheusIT runs their queries. */
class MonitoringTest {
    private static final String VARIABLE = "${datasource}";
    private static final String RUNBOOK = "https://github.com/aliquot-io/aliquot/blob/main/docs/alerts.md#";

    private static final Pattern MATCHER = Pattern.compile("[=!]~?\\s*\"([^\"]*)\"");
    private static final Pattern LABEL_VALUES = Pattern.compile("label_values\\((.+), [a-z]+\\)");
    private static final Pattern DOCUMENTED = Pattern.compile("`([a-z_]+)(\\{[^`]*})?`");
    private static final Pattern NAME = Pattern.compile("[a-zA-Z_:][a-zA-Z0-9_:]*(?![a-zA-Z0-9_:(])(?!\\s+\\()");
    private static final Set<String> WORDS = Set.of("or", "and", "unless");

    static Stream<Named<JsonNode>> dashboards() {
        return Dashboards.all().stream()
                .map(dashboard -> Named.of(dashboard.path("title").asString(""), dashboard));
    }

    @Test
    void dashboardsHaveDifferentUidsAndTitles() {
        List<JsonNode> all = Dashboards.all();

        assertThat(all)
                .extracting(dashboard -> dashboard.path("uid").asString(""))
                .doesNotHaveDuplicates();
        assertThat(all)
                .extracting(dashboard -> dashboard.path("title").asString(""))
                .doesNotHaveDuplicates()
                .allMatch(title -> title.startsWith("Aliquot / "));
    }

    @ParameterizedTest
    @MethodSource("dashboards")
    void everyPanelAndVariableUsesTheDatasourceThatTheUserChooses(JsonNode dashboard) {
        var users = new ArrayList<JsonNode>();
        for (JsonNode variable : dashboard.path("templating").path("list")) {
            if (variable.path("type").asString("").equals("query")) {
                users.add(variable);
            }
        }
        for (JsonNode panel : dashboard.path("panels")) {
            users.add(panel);
            // A query has its panel's: Grafana, PanelQueryRunner.ts, "Attach the data source to each query".
            assertThat(panel.path("targets")).noneMatch(target -> target.has("datasource"));
        }

        assertThat(dashboard.at("/templating/list/0/name").asString("")).isEqualTo("datasource");
        assertThat(dashboard.at("/templating/list/0/type").asString("")).isEqualTo("datasource");
        assertThat(users).hasSizeGreaterThan(1);
        assertThat(users)
                .allSatisfy(user ->
                        assertThat(user.at("/datasource/uid").asString("")).isEqualTo(VARIABLE));
    }

    @ParameterizedTest
    @MethodSource("dashboards")
    void everyPanelHasATitleAUnitAndQueries(JsonNode dashboard) {
        var ids = new HashSet<Integer>();
        for (JsonNode panel : dashboard.path("panels")) {
            String title = panel.path("title").asString("");
            assertThat(title).isNotBlank();
            assertThat(ids.add(panel.path("id").asInt(0))).as(title).isTrue();
            assertThat(panel.at("/fieldConfig/defaults/unit").asString(""))
                    .as(title)
                    .isNotBlank();
            assertThat(panel.path("targets").findValuesAsString("expr"))
                    .as(title)
                    .isNotEmpty();
            assertThat(panel.path("targets").findValuesAsString("refId"))
                    .as(title)
                    .doesNotHaveDuplicates();
        }
    }

    @Test
    void panelsAreInGrafanasModel() {
        var panels = Dashboards.all().getFirst().path("panels");

        assertThat(List.of(panels.get(1), panels.get(9), panels.get(13)))
                .containsExactlyElementsOf(new JsonMapper().readTree("""
                        [
                          {
                            "id": 2,
                            "type": "stat",
                            "title": "Unhealthy GPUs",
                            "datasource": {"type": "prometheus", "uid": "${datasource}"},
                            "gridPos": {"x": 6, "y": 0, "w": 6, "h": 4},
                            "fieldConfig": {"defaults": {
                              "unit": "none",
                              "thresholds": {
                                "mode": "absolute",
                                "steps": [{"color": "green", "value": null}, {"color": "red", "value": 1}]
                              }
                            }},
                            "targets": [{
                              "refId": "A",
                              "expr": "count(max by (node, gpu) (aliquot_gpu_healthy) == 0) or vector(0)",
                              "legendFormat": "unhealthy",
                              "instant": true
                            }],
                            "options": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "none"}
                          },
                          {
                            "id": 10,
                            "type": "timeseries",
                            "title": "Free memory by model",
                            "datasource": {"type": "prometheus", "uid": "${datasource}"},
                            "gridPos": {"x": 12, "y": 20, "w": 12, "h": 8},
                            "fieldConfig": {"defaults": {
                              "unit": "bytes",
                              "min": 0,
                              "custom": {"fillOpacity": 20, "stacking": {"mode": "normal"}}
                            }},
                            "targets": [{
                              "refId": "A",
                              "expr": "sum by (model) (max by (node, gpu, model) (aliquot_gpu_memory_free_bytes))",
                              "legendFormat": "{{model}}"
                            }],
                            "options": {"tooltip": {"mode": "multi", "sort": "desc"}}
                          },
                          {
                            "id": 14,
                            "type": "table",
                            "title": "GPUs by health",
                            "datasource": {"type": "prometheus", "uid": "${datasource}"},
                            "gridPos": {"x": 12, "y": 36, "w": 12, "h": 8},
                            "fieldConfig": {"defaults": {"unit": "none"}},
                            "targets": [{
                              "refId": "A",
                              "expr": "max by (node, gpu, model, reason) (aliquot_gpu_healthy)",
                              "format": "table",
                              "instant": true
                            }],
                            "transformations": [
                              {"id": "merge", "options": {}},
                              {
                                "id": "organize",
                                "options": {"excludeByName": {"Time": true}, "renameByName": {"Value": "healthy"}}
                              }
                            ]
                          }
                        ]
                        """));
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', textBlock = """
            rnage: 7d | dashboards/test.yaml: unknown key: rnage
            panels: [{title: Memory, unti: bytes}] | dashboards/test.yaml: panel "Memory": unknown key: unti
            panels: [{title: Memory, kind: graph}] | dashboards/test.yaml: panel "Memory": unknown kind: graph
            panels: [ | dashboards/test.yaml: error converting YAML to JSON
            """)
    void aMistakeInADashboardIsNamed(String content, String message, @TempDir Path folder) throws IOException {
        Path templates = Files.createDirectory(folder.resolve("templates"));
        Files.copy(Chart.FOLDER.resolve("Chart.yaml"), folder.resolve("Chart.yaml"));
        Files.copy(Chart.FOLDER.resolve("templates/_dashboard.tpl"), templates.resolve("_dashboard.tpl"));
        Files.writeString(templates.resolve("test.yaml"), """
                {{ include "aliquot.dashboard" (dict "path" "dashboards/test.yaml" "content" "%s") }}
                """.formatted(content));

        assertThatThrownBy(() -> new Helm(folder)
                        .template()
                        .withKubeVersion(Chart.KUBERNETES)
                        .call())
                .hasMessageContaining(message);
    }

    @ParameterizedTest
    @MethodSource("dashboards")
    void variablesListTheValuesOfLabelsAndQueriesHaveNoFixedOnes(JsonNode dashboard) {
        List<String> queries = new ArrayList<>(Dashboards.expressions(dashboard));
        for (JsonNode variable : dashboard.path("templating").path("list")) {
            if (!variable.path("type").asString("").equals("datasource")) {
                String query = variable.at("/query/query").asString("");
                assertThat(query).matches(LABEL_VALUES);
                assertThat(variable.path("definition").asString("")).isEqualTo(query);
                queries.add(query);
            }
        }

        var variables = dashboard.path("templating").path("list").findValuesAsString("name");
        assertThat(queries)
                .allSatisfy(query -> assertThat(MATCHER.matcher(query).results())
                        .allMatch(match -> match.group(1).startsWith("$")
                                && variables.contains(match.group(1).substring(1))));
    }

    @Test
    void queriesAndRulesReferToDocumentedMetricsOnly() throws IOException {
        Set<String> known = documented();
        List<String> queries = new ArrayList<>();
        for (JsonNode dashboard : Dashboards.all()) {
            queries.addAll(Dashboards.expressions(dashboard));
            for (JsonNode variable : dashboard.path("templating").path("list")) {
                var values = LABEL_VALUES.matcher(variable.at("/query/query").asString(""));
                if (values.matches()) {
                    queries.add(values.group(1));
                }
            }
        }
        for (JsonNode rule : rules("usage")) {
            known.add(rule.path("record").asString(""));
            queries.add(rule.path("expr").asString(""));
        }
        for (JsonNode rule : rules("alerts")) {
            queries.add(rule.path("expr").asString(""));
        }
        queries.removeIf(query -> query.contains("DCGM_")); // of NVIDIA's exporter

        for (String query : queries) {
            assertThat(known).as(query).containsAll(metrics(query));
            assertThat(metrics(query)).as(query).isNotEmpty();
        }
    }

    /** The names in a query that are neither labels nor functions. */
    private static Set<String> metrics(String query) {
        String bare = query.replaceAll("\\{[^}]*}|\\[[^]]*]", "")
                .replaceAll("\\b(by|without|on|ignoring|group_left|group_right)\\s*\\([^)]*\\)", "");
        return NAME.matcher(bare)
                .results()
                .map(match -> match.group())
                .filter(name -> !WORDS.contains(name))
                .collect(Collectors.toCollection(TreeSet::new));
    }

    private static Set<String> documented() throws IOException {
        var names = new HashSet<String>();
        for (String line : Files.readAllLines(docs("metrics.md"))) {
            DOCUMENTED.matcher(line).results().forEach(match -> {
                String name = match.group(1);
                names.add(name);
                names.add(name.replaceFirst("^aliquot_gpu_", "aliquot_node_gpu_"));
                if (line.contains("| histogram")) {
                    List.of("_bucket", "_count", "_sum").forEach(suffix -> names.add(name + suffix));
                }
            });
        }
        return names;
    }

    @Test
    void everyAlertHasASeverityASentenceAndASectionOfTheRunbook() throws IOException {
        List<String> sections = Files.readAllLines(docs("alerts.md")).stream()
                .filter(line -> line.startsWith("## "))
                .map(line -> line.substring(3))
                .toList();
        var alerts = new ArrayList<String>();
        for (JsonNode rule : rules("alerts")) {
            String alert = rule.path("alert").asString("");
            alerts.add(alert);
            JsonNode annotations = rule.path("annotations");

            assertThat(rule.at("/labels/severity").asString("")).as(alert).isIn("critical", "warning", "info");
            assertThat(annotations.path("summary").asString("")).as(alert).endsWith(".");
            assertThat(annotations.path("description").asString("")).as(alert).endsWith(".");
            // GitHub's anchor of a heading of one word.
            assertThat(annotations.path("runbook_url").asString(""))
                    .as(alert)
                    .isEqualTo(RUNBOOK + alert.toLowerCase(Locale.ROOT));
        }

        assertThat(alerts).doesNotHaveDuplicates();
        assertThat(sections).containsExactlyInAnyOrderElementsOf(alerts);
    }

    @ParameterizedTest
    @ValueSource(strings = {"usage-rules", "alert-rules"})
    void theRulesPassPromtoolsTests(String name, @TempDir Path folder) throws Exception {
        Path rules = Chart.FOLDER.resolve("rules").resolve(name.startsWith("usage") ? "usage.yaml" : "alerts.yaml");
        try (var resource = MonitoringTest.class.getResourceAsStream(name + "-test.yaml")) {
            Path test = Files.writeString(
                    folder.resolve("test.yaml"),
                    new String(resource.readAllBytes(), StandardCharsets.UTF_8).replace("[RULES]", "[" + rules + "]"));

            promtool("check", "rules", rules.toString());
            promtool("test", "rules", test.toString());
        }
    }

    /**
     * At 2,000 GPUs the limits once ended, and with them these alerts and the chargeback. The alerts in three tests of 100
     * nodes: promtool loads at most 10,000 samples for a query (prometheus, promql/promqltest, LazyLoader).
     */
    @Test
    void alertsAndChargebackCoverTheContainersOf2400Gpus(@TempDir Path folder) throws Exception {
        var alerts = new StringBuilder("rule_files: [%s/alerts.yaml]\nevaluation_interval: 1h\ntests:\n"
                .formatted(Chart.FOLDER.resolve("rules")));
        for (int first = 0; first < 300; first += 100) {
            alerts.append("""
                    - interval: 1h
                      promql_expr_test:
                      - expr: count by (alertname) (ALERTS{alertstate="firing", gpu!=""})
                        eval_time: 2h
                        exp_samples:
                        - {labels: '{alertname="AliquotUsageAboveGrant"}', value: 800}
                        - {labels: '{alertname="AliquotIdleShare"}', value: 800}
                      input_series:
                    """);
            alerts.append(limits(first, first + 100));
            for (int gpu = first * 8; gpu < (first + 100) * 8; gpu++) {
                alerts.append("""
                          - {series: 'aliquot_container_memory_used_bytes{namespace="a",pod="p-%1$d",container="c",gpu="GPU-%1$d",node="n%2$d",kind="charged"}', values: 2000000000x2}
                          - {series: 'aliquot_gpu_memory_used_bytes{gpu="GPU-%1$d",node="n%2$d",scope="shares"}', values: 2000000000x2}
                        """.formatted(gpu, gpu / 8));
            }
        }
        String usage = """
                rule_files: [%s/usage.yaml]
                tests:
                - promql_expr_test:
                  - expr: namespace:aliquot_container_memory_limit_bytes:sum
                    eval_time: 1m
                    exp_samples:
                    - {labels: 'namespace:aliquot_container_memory_limit_bytes:sum{namespace="a"}', value: 2400000000000}
                  input_series:
                """.formatted(Chart.FOLDER.resolve("rules")) + limits(0, 300);

        promtool(
                "test",
                "rules",
                Files.writeString(folder.resolve("alerts.yaml"), alerts).toString(),
                Files.writeString(folder.resolve("usage.yaml"), usage).toString());
    }

    /** The limit of a container on each of the eight GPUs of these nodes, as a node's agent shows it. */
    private static String limits(int first, int end) {
        return IntStream.range(first * 8, end * 8)
                .mapToObj(gpu -> """
                          - {series: 'aliquot_container_memory_limit_bytes{namespace="a",pod="p-%1$d",container="c",gpu="GPU-%1$d",node="n%2$d"}', values: 1000000000x2}
                        """.formatted(gpu, gpu / 8))
                .collect(Collectors.joining());
    }

    @Test
    void everyAlertIsTestedToFire() throws IOException {
        try (var resource = MonitoringTest.class.getResourceAsStream("alert-rules-test.yaml")) {
            String test = new String(resource.readAllBytes(), StandardCharsets.UTF_8);

            assertThat(rules("alerts"))
                    .allSatisfy(rule -> assertThat(test)
                            .containsPattern("- alertname: "
                                    + rule.path("alert").asString("") + "\n +eval_time: .*\n +exp_alerts:"));
        }
    }

    @Test
    void everyQueryOfTheDashboardsIsPromql(@TempDir Path folder) throws Exception {
        var rules = new StringBuilder("groups: [{name: dashboards, rules: [\n");
        List<String> queries = Dashboards.queries("5m");
        for (int i = 0; i < queries.size(); i++) {
            rules.append("{record: 'query:%d', expr: '%s'},\n".formatted(i, queries.get(i)));
        }
        Path file = Files.writeString(folder.resolve("rules.yaml"), rules + "]}]\n");

        assertThat(promtool("check", "rules", file.toString())).contains(queries.size() + " rules found");
    }

    private static String promtool(String... arguments) throws IOException, InterruptedException {
        assumeTrue(
                Arrays.stream(System.getenv("PATH").split(":", -1))
                        .anyMatch(folder -> Files.isExecutable(Path.of(folder, "promtool"))),
                "promtool is not on the PATH");
        var command = new ArrayList<>(List.of("promtool"));
        command.addAll(List.of(arguments));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertThat(process.waitFor()).as(output).isZero();
        return output;
    }

    private static Path docs(String page) {
        return Chart.root().resolve("docs").resolve(page);
    }

    /** The rules of an object that the chart renders. */
    private static List<JsonNode> rules(String name) {
        var object = Chart.the(
                Chart.render(Chart.FOLDER.resolve("ci/everything-values.yaml")),
                GenericKubernetesResource.class,
                "aliquot-" + name);
        JsonNode groups = new JsonMapper().valueToTree(object.get("spec", "groups"));
        List<JsonNode> rules = new ArrayList<>();
        groups.forEach(group -> group.path("rules").forEach(rules::add));
        return rules;
    }
}
