package io.aliquot.scheduler.extender;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.scheduler.extender.Wire.Args;
import io.aliquot.scheduler.extender.Wire.Container;
import io.aliquot.scheduler.extender.Wire.Resources;
import io.aliquot.scheduler.pending.PreemptionRank;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodRuntime;
import io.aliquot.scheduler.placement.PodScopes;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

class WireTest {
    private static final JsonMapper JSON = JsonMapper.shared();
    private static final String ARGS = """
            {"Nodes": null, "NodeNames": ["n1", "n2"], "Pod": {
              "status": {"phase": "Pending", "nominatedNodeName": "n2", "conditions": [{"type": "x"}]},
              "metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "12", "annotations": {"k": "v", "none": null},
                "managedFields": [{"fieldsV1": {"f:spec": {"uid": "no", "name": ["no"]}}}]},
              "spec": {"runtimeClassName": "nvidia", "hostUsers": false, "overhead": {"cpu": "250m"}, "resources": {"requests": {"memory": "2Gi"}}, "priority": 7, "priorityClassName": "high", "activeDeadlineSeconds": 600, "preemptionPolicy": "Never", "nodeName": null,
                "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
                "containers": [
                  {"name": "c", "env": [{"name": "no"}], "resources": {"claims": [{}], "limits": {"aliquot.io/vgpu": "2"}}},
                  {"name": "d"}]}}}
            """;

    @Test
    void unusedFieldsAreSkipped() {
        Args args = ExtenderFixture.args(ARGS);
        assertThat(args.nodeNames()).hasValue(List.of("n1", "n2"));
        assertThat(args.pod())
                .isEqualTo(new Wire.Pod(
                        new Wire.Metadata("default", "a", "u", 12, Map.of("k", "v")),
                        new Wire.Spec(
                                List.of(new Container("i", new Resources(Map.of(), Map.of("cpu", "1")), "Always")),
                                List.of(
                                        new Container("c", new Resources(Map.of("aliquot.io/vgpu", "2"), Map.of()), ""),
                                        new Container("d", new Resources(), "")),
                                new Resources(Map.of(), Map.of("memory", "2Gi")),
                                Map.of("cpu", "250m"),
                                Map.of(),
                                List.of(),
                                7,
                                "high",
                                "Never",
                                600L,
                                "nvidia",
                                false),
                        new Wire.Status("n2")));
        assertThat(args.pod().requesting(args.pod().template().request()).rank())
                .isEqualTo(new PreemptionRank(7, false));
        assertThat(args.pod().template().request().scopes()).isEqualTo(new PodScopes("high", true));
        assertThat(args.pod().template().request().runtime()).isEqualTo(new PodRuntime("nvidia", true));
    }

    /** Like k8s.io/component-helpers, the sum includes overhead, init containers and pod-level requests. */
    @Test
    void thePodsRequestsEqualThoseOfKubeScheduler() {
        Wire.Pod pod = ExtenderFixture.args(ARGS.replace("\"restartPolicy\": \"Always\", ", ""))
                .pod();
        assertThat(pod.template().request().hostRequests()).isEqualTo(new HostResources(1250, 2L << 30));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "\"affinity\": {\"nodeAffinity\": {\"requiredX\": [{}], \"preferredDuringSchedulingIgnoredDuringExecution\": [{\"weight\": 1}]}}",
                "\"affinity\": {\"podAffinity\": {\"preferredDuringSchedulingIgnoredDuringExecution\": [{}, {}]}}",
                "\"affinity\": {\"podAntiAffinity\": {\"preferredDuringSchedulingIgnoredDuringExecution\": [[1]]}, \"x\": {}}",
                "\"topologySpreadConstraints\": [{\"whenUnsatisfiable\": \"ScheduleAnyway\"}, {\"maxSkew\": 1}]"
            })
    void onlySoftSchedulingConstraintsArePreferences(String kind) {
        assertThat(ExtenderFixture.args(ARGS.replace("\"priority\"", kind + ", \"priority\""))
                        .pod()
                        .template()
                        .preferences())
                .isTrue();
        String must = kind.replace("preferred", "required").replace("ScheduleAnyway", "DoNotSchedule");
        assertThat(ExtenderFixture.args(ARGS.replace("\"priority\"", must + ", \"priority\""))
                        .pod()
                        .template()
                        .preferences())
                .isFalse();
    }

    @Test
    void theErrorNamesTheMissingField() {
        for (String part : List.of("\"uid\"", "\"namespace\"", "\"metadata\"", "\"spec\"", "\"Pod\"", "\"name\"")) {
            assertThatThrownBy(() -> ExtenderFixture.args(ARGS.replace(part, "\"other\"")))
                    .as(part)
                    .isInstanceOf(JacksonException.class)
                    .hasMessageContaining("expected ")
                    .hasMessageContaining(part.replace("\"", ""))
                    .hasMessageContaining(", found none");
        }
        assertThatThrownBy(() -> ExtenderFixture.args(ARGS + "{}")).isInstanceOf(JacksonException.class);
        assertThatThrownBy(() -> Wire.mapper().readValue(ARGS, Wire.PreemptionArgs.class))
                .isInstanceOf(JacksonException.class)
                .hasMessageContaining("expected NodeNameToMetaVictims, found none");
    }

    @Test
    void truncatedInputIsMalformed() {
        String whole = ARGS.strip();
        for (int length = 0; length < whole.length(); length++) {
            String cut = whole.substring(0, length);
            assertThatThrownBy(() -> ExtenderFixture.args(cut)).as(cut).isInstanceOf(JacksonException.class);
        }
    }

    /** Replaces each value by another one: the reader reads it or throws a JacksonException, and nothing else. */
    @ParameterizedTest
    @ValueSource(strings = {"null", "3", "1e400", "true", "\"x\"", "{}", "[]", "[null]", "{\"name\": {\"uid\": []}}"})
    void anyValueIsReadOrRejectedAsMalformed(String other) {
        var answers = new ArrayList<Boolean>();
        JsonNode args = JSON.readTree(ARGS);
        inPlaceOfEach(args, JSON.readTree(other), () -> {
            try {
                answers.add(ExtenderFixture.args(args.toString()).nodeNames().isPresent());
            } catch (JacksonException e) {
                answers.add(false);
            }
        });
        assertThat(answers).hasSizeGreaterThan(40).contains(true, false);
    }

    private static void inPlaceOfEach(JsonNode node, JsonNode other, Runnable check) {
        if (node instanceof ObjectNode object) {
            for (String field : List.copyOf(object.propertyNames())) {
                JsonNode before = object.replace(field, other);
                check.run();
                object.set(field, before);
                inPlaceOfEach(before, other, check);
            }
        } else if (node instanceof ArrayNode array) {
            for (int i = 0; i < array.size(); i++) {
                JsonNode before = array.get(i);
                array.set(i, other);
                check.run();
                array.set(i, before);
                inPlaceOfEach(before, other, check);
            }
        }
    }
}
