package io.aliquot.scheduler.doctor;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.format.JsonFields;
import io.aliquot.api.nodes.NodeLabel;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tools.jackson.databind.JsonNode;

class RedactionTest {
    @ParameterizedTest
    @ValueSource(
            strings = {
                "cannot call https://user:PLANTED@proxy:3128/path",
                "Authorization: Bearer PLANTED.PLANTED-PLANTED",
                "exec: tool --token=PLANTED --x",
                "{\"password\":\"PLANTED\"}",
                "args:\n  - name: x\n    api_key: PLANTED\n",
                "-----BEGIN EC PRIVATE KEY-----\nPLANTED\n-----END EC PRIVATE KEY-----",
                "a log that ends within -----BEGIN PRIVATE KEY-----\nPLANTED",
                "eyJhbGciOiJSUzI1NiJ9PLANTED.eyJpc3MiOiJrdWJlcm5ldGVzPLANTED.c2lnPLANTED"
            })
    void secretsInTextAreReplaced(String text) {
        assertThat(Redaction.text(text)).doesNotContain("PLANTED").contains("(redacted)");
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "the Secret aliquot-webhook-tls is missing",
                "bind pod=team/train uid=1 node=node1 outcome=bound",
                "secretName: aliquot-webhook-tls",
                "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
                "http://10.0.0.1:9090/metrics basic checks"
            })
    void otherTextStays(String text) {
        assertThat(Redaction.text(text)).isEqualTo(text);
    }

    @Test
    void ofOurObjectsTheValuesOfForeignVariablesAndAnnotationsAreLeftOut() {
        JsonNode deployment = json("""
                {"metadata": {"name": "aliquot-scheduler", "managedFields": [{"manager": "PLANTED"}],
                    "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "PLANTED", "checksum/x": "1"}},
                 "spec": {"template": {"metadata": {"annotations": {"vault.example.com/role": "PLANTED"}},
                    "spec": {"containers": [{"name": "extender", "args": ["--password=PLANTED"], "env": [
                        {"name": "ALIQUOT_NODE_LABEL", "value": "gpu=on"},
                        {"name": "MY_TOKEN", "value": "PLANTED"},
                        {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}]}}}}
                """);

        JsonNode own = Redaction.own(deployment);

        assertThat(own.toString())
                .doesNotContain("PLANTED")
                .contains("\"checksum/x\":\"1\"", "gpu=on", "MY_TOKEN", "secretKeyRef", "--password=(redacted)");
        assertThat(deployment.toString()).as("the original").contains("PLANTED");
    }

    @Test
    void ofAShareOnlyWhatAliquotAndKubernetesWroteIsKept() {
        JsonNode share = Redaction.share(json("""
                {"metadata": {"namespace": "team", "name": "train", "uid": "u", "labels": {"a": "PLANTED"},
                    "annotations": {"aliquot.io/vgpu.main": "GPU-1", "example.com/note": "PLANTED"}},
                 "spec": {"nodeName": "node1", "containers": [{"name": "main", "image": "PLANTED", "command": ["PLANTED"],
                    "env": [{"name": "PLANTED", "value": "PLANTED"}],
                    "resources": {"limits": {"nvidia.com/gpumem": "64", "example.com/PLANTED": "1"}}}]},
                 "status": {"phase": "Failed", "message": "PLANTED",
                    "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes"},
                        {"type": "example.com/gate", "status": "False", "message": "PLANTED"}],
                    "containerStatuses": [{"name": "main", "restartCount": 2, "image": "PLANTED",
                        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "PLANTED"}},
                        "lastState": {"terminated": {"reason": "Error", "exitCode": 3, "message": "PLANTED"}}}]}}
                """));

        assertThat(share.toString())
                .doesNotContain("PLANTED")
                .contains(
                        "GPU-1",
                        "node1",
                        "\"nvidia.com/gpumem\":\"64\"",
                        "0/2 nodes",
                        "CrashLoopBackOff",
                        "\"exitCode\":3");
    }

    @Test
    void ofANodeForeignAnnotationsAndLabelsAreLeftOut() {
        JsonNode node = Redaction.node(json("""
                {"metadata": {"name": "node1", "labels": {"team/gpus": "on", "example.com/x": "PLANTED", "nvidia.com/gpu.count": "2"},
                    "annotations": {"aliquot.io/gpus": "{}", "example.com/join": "PLANTED"}},
                 "status": {"nodeInfo": {"kernelVersion": "6.12"}, "images": [{"names": ["PLANTED"]}],
                    "conditions": [{"type": "AliquotGPUsHealthy", "status": "True", "message": "2 GPUs"},
                        {"type": "Other", "status": "True", "message": "PLANTED"}]}}
                """), NodeLabel.parse("team/gpus=on"));

        assertThat(node.toString())
                .doesNotContain("PLANTED")
                .contains("team/gpus", "nvidia.com/gpu.count", "aliquot.io/gpus", "6.12", "2 GPUs", "Other");
    }

    @Test
    void eventsAboutSharesSayOnlyWhatNoContainerPrintedOrRuns() {
        assertThat(shareEvent("aliquot-scheduler", "FailedScheduling", "0/2 nodes"))
                .contains("0/2 nodes");
        assertThat(shareEvent("kubelet", "FailedCreatePodSandBox", "no runtime for x"))
                .contains("no runtime");
        assertThat(shareEvent("kubelet", "Failed", "stderr: aliquot: the limits are missing"))
                .contains("limits");
        assertThat(shareEvent("kubelet", "Failed", "aliquot exec: \"tool PLANTED\": not found"))
                .contains("Failed")
                .doesNotContain("PLANTED");
        assertThat(shareEvent("kubelet", "Unhealthy", "aliquot PLANTED"))
                .contains("Unhealthy", "\"time\":\"2026-11-29T12:00:00Z\"", "train")
                .doesNotContain("PLANTED");
    }

    private static String shareEvent(String reporter, String reason, String message) {
        return Redaction.shareEvent(json("""
                        {"lastTimestamp": "2026-11-29T12:00:00Z", "source": {"component": "%s"}, "reason": "%s", "message": "%s",
                         "involvedObject": {"kind": "Pod", "namespace": "team", "name": "train", "uid": "u"}}
                        """.formatted(reporter, reason, message.replace("\"", "\\\""))))
                .toString();
    }

    private static JsonNode json(String text) {
        return JsonFields.JSON.readTree(text);
    }
}
