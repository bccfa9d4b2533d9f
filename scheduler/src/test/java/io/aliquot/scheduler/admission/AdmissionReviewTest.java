package io.aliquot.scheduler.admission;

import static io.aliquot.scheduler.admission.Pods.JSON;
import static io.aliquot.scheduler.admission.Pods.parse;
import static io.aliquot.scheduler.admission.Pods.respond;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.PodDefaults;
import io.aliquot.api.ports.ApiServers;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

class AdmissionReviewTest {
    private static final String VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES";
    private static final GpuAdmission GPU =
            new GpuAdmission("", name -> Optional.of("nvidia"), false, Compatibility.NONE, () -> PodDefaults.NONE);

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
    void allowsAMutatedPodWithAPatch() {
        JsonNode response = respond(review(Pods.gpuPod()), GPU);

        assertThat(response.get("uid").stringValue()).isEqualTo("705ab4f5-6393-11e8-b7cc-42010a800002");
        assertThat(response.get("allowed").booleanValue()).isTrue();
        assertThat(response.get("patchType").stringValue()).isEqualTo("JSONPatch");
        JsonNode patch = JSON.readTree(response.get("patch").binaryValue());
        assertThat(Pods.patched(patch, Pods.gpuPod())).isEqualTo(Pods.mutated(GPU, Pods.gpuPod()));
    }

    @Test
    void removesDuplicatesOfTheVariable() {
        ObjectNode pod = Pods.gpuPod();
        for (int i = 0; i < 100; i++) {
            pod.withArray("/spec/containers/0/env").addObject().put("name", i % 2 == 0 ? "A" + i : VISIBLE_DEVICES);
        }

        assertThat(Pods.mutated(GPU, pod).at("/spec/containers/0/env").findValuesAsString("name"))
                .containsOnlyOnce(VISIBLE_DEVICES);
    }

    /** The tree of the first one and its copy took 100 MiB. */
    @ParameterizedTest
    @CsvSource(delimiter = '|', textBlock = """
            /spec/containers/0/env          | {"name": "A"}                       | 220000
            /spec/containers/0/env          | {"name": "NVIDIA_VISIBLE_DEVICES"}  | 50000
            /spec/containers/0/volumeMounts | {"name": "a", "mountPath": "/etc"}  | 50000
            /spec/containers                | {"name": "a"}                       | 100000
            /spec/initContainers            | {}                                  | 1000000
            /spec/volumes                   | {"name": "aliquot-vgpu-a"}          | 50000
            /spec/tolerations               | {"key": "nvidia.com/gpu"}           | 50000
            """)
    void deniesAGpuPodOfWhichItWouldKeepTooMuchAndLeavesAnotherOneUnchanged(String array, String element, int count) {
        ObjectNode pod = Pods.gpuPod();
        ArrayNode elements = pod.withArray(array);
        JsonNode one = parse(element);
        for (int i = 0; i < count; i++) {
            elements.add(one);
        }

        JsonNode response = respond(review(pod), GPU);
        assertThat(response.get("allowed").booleanValue()).isFalse();
        assertThat(response.get("uid").stringValue()).isEqualTo("705ab4f5-6393-11e8-b7cc-42010a800002");
        assertThat(response.at("/status/code").intValue()).isEqualTo(413);
        assertThat(response.at("/status/message").stringValue()).contains("too large");
        assertUnchanged(new ReviewMemory(ApiServers.UNKNOWN), pod);
    }

    private static void assertUnchanged(ReviewMemory memory, ObjectNode pod) {
        JsonNode response = JSON.readTree(Pods.answer(
                        memory,
                        review(pod).toString(),
                        AdmissionReview.Oversized.UNCHANGED,
                        read -> new VoidAdmission(Set.of(), node -> true)))
                .get("response");
        assertThat(response.get("allowed").booleanValue()).isTrue();
        assertThat(response.get("uid").stringValue()).isEqualTo("705ab4f5-6393-11e8-b7cc-42010a800002");
        assertThat(response.has("patch")).isFalse();
        assertThat(response.at("/warnings/0").stringValue()).contains("too large");
    }

    @Test
    void deniesAPodWithLongOrManyAnnotationsOfItsOwn() {
        ObjectNode many = Pods.gpuPod();
        ObjectNode annotations = many.withObject("/metadata/annotations");
        for (int i = 0; i < 100_000; i++) {
            annotations.put("aliquot.io/" + i, "");
        }
        ObjectNode longer = Pods.gpuPod();
        longer.withObject("/metadata/annotations").put("aliquot.io/use-gpu-model", "a".repeat(1 << 20));
        ObjectNode longName = Pods.gpuPod();
        longName.withObject("/metadata/annotations").put("a".repeat(100_000), "");
        for (ObjectNode pod : List.of(many, longer, longName)) {
            assertThat(respond(review(pod), GPU).at("/status/code").intValue()).isEqualTo(413);
            assertUnchanged(new ReviewMemory(ApiServers.UNKNOWN), pod);
        }
    }

    @Test
    void readsPastWhatAdmissionDoesNotNeed() {
        ObjectNode pod = Pods.gpuPod();
        Pods.container(pod, 0).put("command", "a".repeat(1 << 20));
        ObjectNode labels = pod.withObject("/metadata/labels");
        for (int i = 0; i < 100_000; i++) {
            labels.put("example.com/" + i, "");
        }
        assertThat(respond(review(pod), GPU).get("allowed").booleanValue()).isTrue();
    }

    @Test
    void whileOtherLargePodsAreReadALargeOneIsToBeSentAgainAndASmallOneIsAdmitted() {
        ObjectNode large = Pods.gpuPod();
        for (int i = 0; i < 200; i++) {
            large.withArray("/spec/containers").addObject().put("name", "c" + i);
        }
        var memory = new ReviewMemory(ApiServers.UNKNOWN);
        var others = new ArrayList<ReviewMemory.Share>();
        for (int i = 0; i < ReviewMemory.SHARED / (ReviewMemory.MOST - ReviewMemory.FREE) + 1; i++) {
            others.add(memory.share(InetAddress.getLoopbackAddress()));
        }
        assertThatThrownBy(() -> others.forEach(share -> share.take(ReviewMemory.MOST)))
                .isInstanceOf(DeniedException.class);

        JsonNode denied = JSON.readTree(Pods.answer(memory, review(large).toString(), read -> GPU))
                .get("response");
        assertThat(denied.at("/status/code").intValue()).isEqualTo(429);
        assertThat(denied.at("/status/details/retryAfterSeconds").intValue()).isPositive();
        assertUnchanged(memory, large);
        assertThat(JSON.readTree(Pods.answer(memory, review(Pods.gpuPod()).toString(), read -> GPU))
                        .at("/response/allowed")
                        .booleanValue())
                .isTrue();

        others.forEach(ReviewMemory.Share::close);
        assertThat(JSON.readTree(Pods.answer(memory, review(large).toString(), read -> GPU))
                        .at("/response/allowed")
                        .booleanValue())
                .isTrue();
    }

    @Test
    void readsThatAContainerClaimsDevices() {
        ObjectNode pod = Pods.requesting("{\"cpu\": \"1\"}");
        var hiding = new VoidAdmission(Set.of(), node -> true);
        assertThat(respond(review(pod), hiding).has("patch")).isTrue();

        pod.withObject("/spec/containers/0/resources")
                .putArray("claims")
                .addObject()
                .put("name", "gpu");

        assertThat(respond(review(pod), hiding).has("patch")).isFalse();
    }

    @Test
    void allowsAPodWithoutChangesWithoutAPatch() {
        JsonNode response = respond(review(Pods.mutated(GPU, Pods.gpuPod())), GPU);

        assertThat(response.get("allowed").booleanValue()).isTrue();
        assertThat(response.has("patch")).isFalse();
        assertThat(response.has("patchType")).isFalse();
    }

    @Test
    void warnsOfRemovedAnnotations() {
        ObjectNode pod = Pods.gpuPod();
        assertThat(respond(review(pod), GPU).has("warnings")).isFalse();
        pod.withObject("/metadata/annotations").put("aliquot.io/fence", "a/1");

        JsonNode response = respond(review(pod), GPU);

        assertThat(response.get("allowed").booleanValue()).isTrue();
        assertThat(response.at("/warnings/0").stringValue()).contains("removed the annotation aliquot.io/fence: ");
    }

    @Test
    void deniesWithAMessageAndStatus403() {
        JsonNode response = respond(review(Pods.requesting("{\"nvidia.com/gpumem\": \"3Gi\"}")), GPU);

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
        ObjectNode deletion = review(Pods.gpuPod());
        deletion.withObject("/request").put("operation", "DELETE");
        ObjectNode binding = review(Pods.gpuPod());
        binding.withObject("/request").put("subResource", "binding");
        ObjectNode withoutPod = review(Pods.gpuPod());
        withoutPod.withObject("/request").putNull("object");
        ObjectNode withoutUid = review(Pods.gpuPod());
        withoutUid.withObject("/request").put("uid", "");

        for (ObjectNode review :
                new ObjectNode[] {beta, deployment, other, deletion, binding, withoutPod, withoutUid}) {
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

        var seen = new ArrayList<AdmissionReview>();
        Pods.answer(adding.toString(), review -> {
            seen.add(review);
            return GPU;
        });

        assertThat(seen.get(0).existingContainers()).containsExactlyInAnyOrder("main", "earlier");
        assertThatThrownBy(() -> seen.get(0).require(AdmissionReview.Operation.CREATE))
                .isInstanceOf(MalformedReviewException.class)
                .hasMessageStartingWith("expected the CREATE of a v1 Pod;");
        adding.withObject("/request").putNull("oldObject");
        assertMalformed(adding.toString());
    }

    @Test
    void rejectsGarbageAndDeepNesting() {
        assertMalformed("{\"kind\":".repeat(100_000));
        assertMalformed("[".repeat(100_000));
        assertMalformed("\uffff\u0000\u0001");
    }

    private static void assertMalformed(String body) {
        assertThatThrownBy(() -> Pods.answer(body, review -> GPU))
                .isInstanceOf(MalformedReviewException.class)
                .hasMessageStartingWith("expected ");
    }
}
