package io.aliquot.scheduler.admission;

import static io.aliquot.scheduler.admission.Pods.JSON;
import static io.aliquot.scheduler.admission.Pods.parse;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.names.Compatibility;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

class AdmissionReviewTest {
    private static final GpuAdmission GPU = new GpuAdmission("aliquot-scheduler", "", Compatibility.NONE);

    /** An AdmissionReview as kube-apiserver 1.35 sends it. */
    static ObjectNode review(ObjectNode pod) {
        ObjectNode review = parse("""
            {
              "kind": "AdmissionReview",
              "apiVersion": "admission.k8s.io/v1",
              "request": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
                "requestResource": {"group": "", "version": "v1", "resource": "pods"},
                "name": "train",
                "namespace": "team",
                "operation": "CREATE",
                "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
                "oldObject": null,
                "dryRun": false,
                "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
              }
            }
            """);
        ((ObjectNode) review.get("request")).set("object", pod);
        return review;
    }

    @Test
    void allowsAMutatedPodWithAPatch() throws IOException {
        JsonNode response = respond(review(Pods.gpuPod()));

        assertThat(response.get("uid").stringValue()).isEqualTo("705ab4f5-6393-11e8-b7cc-42010a800002");
        assertThat(response.get("allowed").booleanValue()).isTrue();
        assertThat(response.get("patchType").stringValue()).isEqualTo("JSONPatch");
        JsonNode patch = JSON.readTree(response.get("patch").binaryValue());
        assertThat(Pods.patched(patch, Pods.gpuPod())).isEqualTo(Pods.mutated(GPU, Pods.gpuPod()));
    }

    @Test
    void respondsToAHostilePodWithAShortPatch() throws IOException {
        ObjectNode pod = Pods.gpuPod();
        for (int i = 0; i < 50_000; i++) {
            pod.withArray("/spec/containers/0/env").addObject().put("name", "NVIDIA_VISIBLE_DEVICES");
        }

        JsonNode patch = JSON.readTree(respond(review(pod)).get("patch").binaryValue());

        assertThat(patch.size()).isLessThan(10);
        assertThat(Pods.patched(patch, pod)).isEqualTo(Pods.mutated(GPU, Pods.gpuPod()));
    }

    @Test
    void allowsAPodWithoutChangesWithoutAPatch() throws IOException {
        JsonNode response = respond(review(Pods.mutated(GPU, Pods.gpuPod())));

        assertThat(response.get("allowed").booleanValue()).isTrue();
        assertThat(response.has("patch")).isFalse();
        assertThat(response.has("patchType")).isFalse();
    }

    @Test
    void warnsOfRemovedAnnotations() throws IOException {
        ObjectNode pod = Pods.gpuPod();
        assertThat(respond(review(pod)).has("warnings")).isFalse();
        pod.withObject("/metadata/annotations").put("aliquot.io/fence", "a/1");

        JsonNode response = respond(review(pod));

        assertThat(response.get("allowed").booleanValue()).isTrue();
        assertThat(response.at("/warnings/0").stringValue()).contains("removed the annotation aliquot.io/fence: ");
    }

    @Test
    void deniesWithAMessageAndStatus403() throws IOException {
        JsonNode response = respond(review(Pods.requesting("{\"nvidia.com/gpumem\": \"3Gi\"}")));

        assertThat(response.get("uid").stringValue()).isEqualTo("705ab4f5-6393-11e8-b7cc-42010a800002");
        assertThat(response.get("allowed").booleanValue()).isFalse();
        assertThat(response.at("/status/code").intValue()).isEqualTo(403);
        assertThat(response.at("/status/message").stringValue())
                .isEqualTo("container main: nvidia.com/gpumem counts MiB: write 3072 instead of 3Gi");
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                " ",
                "{",
                "null",
                "[]",
                "1",
                "\"x\"",
                "{}",
                "{} {}",
                "{\"kind\": \"AdmissionReview\", \"kind\": \"AdmissionReview\"}",
                "{\"kind\": \"AdmissionReview\", \"apiVersion\": \"admission.k8s.io/v1\"}",
                "{\"kind\": \"AdmissionReview\", \"apiVersion\": \"admission.k8s.io/v1\", \"request\": {}}",
                "{\"kind\": 1, \"apiVersion\": [], \"request\": {}}"
            })
    void rejectsABodyThatIsNotAReview(String body) {
        assertMalformed(body);
    }

    @Test
    void rejectsAReviewOfAnotherObjectOrOperation() {
        ObjectNode beta = review(Pods.gpuPod()).put("apiVersion", "admission.k8s.io/v1beta1");
        ObjectNode deployment = review(Pods.gpuPod());
        deployment.withObject("/request/kind").put("kind", "Deployment");
        ObjectNode other = review(Pods.gpuPod());
        other.withObject("/request/kind").put("group", "example.com");
        ObjectNode update = review(Pods.gpuPod());
        update.withObject("/request").put("operation", "UPDATE");
        ObjectNode binding = review(Pods.gpuPod());
        binding.withObject("/request").put("subResource", "binding");
        ObjectNode withoutPod = review(Pods.gpuPod());
        withoutPod.withObject("/request").putNull("object");
        ObjectNode withoutUid = review(Pods.gpuPod());
        withoutUid.withObject("/request").put("uid", "");

        for (ObjectNode review : new ObjectNode[] {beta, deployment, other, update, binding, withoutPod, withoutUid}) {
            assertMalformed(review.toString());
        }
    }

    @Test
    void readsTheExistingContainersWhenAnEphemeralContainerIsAdded() {
        ObjectNode before = Pods.gpuPod();
        before.withArray("/spec/ephemeralContainers").addObject().put("name", "earlier");
        ObjectNode adding = review(Pods.gpuPod());
        adding.withObject("/request")
                .put("operation", "UPDATE")
                .put("subResource", "ephemeralcontainers")
                .set("oldObject", before);

        AdmissionReview review = AdmissionReview.parse(adding.toString().getBytes(StandardCharsets.UTF_8));

        assertThat(review.existingContainers()).containsExactlyInAnyOrder("main", "earlier");
        assertThatThrownBy(review::requireCreation)
                .isInstanceOf(MalformedReviewException.class)
                .hasMessageStartingWith("expected the CREATE of a v1 Pod;");
        adding.withObject("/request").putNull("oldObject");
        assertMalformed(adding.toString());
    }

    @Test
    void rejectsGarbageAndDeepNesting() {
        assertMalformed("{\"kind\":".repeat(100_000));
        assertMalformed("[".repeat(100_000));
        assertThatThrownBy(() -> AdmissionReview.parse(new byte[] {(byte) 0xff, 0, 1, (byte) 0xfe}))
                .isInstanceOf(MalformedReviewException.class);
    }

    private static void assertMalformed(String body) {
        assertThatThrownBy(() -> AdmissionReview.parse(body.getBytes(StandardCharsets.UTF_8)))
                .isInstanceOf(MalformedReviewException.class)
                .hasMessageStartingWith("expected ");
    }

    private static JsonNode respond(ObjectNode review) throws IOException {
        byte[] body = review.toString().getBytes(StandardCharsets.UTF_8);
        JsonNode answer = JSON.readTree(AdmissionReview.parse(body).respond(GPU));
        assertThat(answer.get("kind").stringValue()).isEqualTo("AdmissionReview");
        assertThat(answer.get("apiVersion").stringValue()).isEqualTo("admission.k8s.io/v1");
        return answer.get("response");
    }
}
