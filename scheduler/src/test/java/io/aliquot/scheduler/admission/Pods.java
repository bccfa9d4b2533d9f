package io.aliquot.scheduler.admission;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.ports.ApiServers;
import java.io.ByteArrayInputStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.function.Function;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

/** Pods as kube-apiserver 1.35 sends them to webhooks, with canonical quantities and its defaults. */
final class Pods {
    static final JsonMapper JSON = new JsonMapper();

    private Pods() {}

    static ObjectNode parse(String json) {
        try {
            return (ObjectNode) JSON.readTree(json);
        } catch (JacksonException e) {
            throw new AssertionError(json, e);
        }
    }

    /** The pod after a JSON Patch, as zjsonpatch applies it, which knows Jackson 2 only. */
    static JsonNode patched(JsonNode patch, JsonNode pod) {
        var json = new com.fasterxml.jackson.databind.ObjectMapper();
        try {
            return parse(io.fabric8.zjsonpatch.JsonPatch.apply(
                            json.readTree(patch.toString()), json.readTree(pod.toString()))
                    .toString());
        } catch (com.fasterxml.jackson.core.JsonProcessingException e) {
            throw new AssertionError(e);
        }
    }

    /** A pod with one container, main, with these limits and the requests that the API server derives. */
    static ObjectNode requesting(String limits) {
        return parse("""
            {
              "kind": "Pod",
              "apiVersion": "v1",
              "metadata": {"name": "train", "namespace": "team", "creationTimestamp": null},
              "spec": {
                "volumes": [{"name": "kube-api-access-x7k2p", "projected": {"sources": [], "defaultMode": 420}}],
                "containers": [
                  {
                    "name": "main",
                    "image": "cuda:12",
                    "resources": {"limits": %s, "requests": %s},
                    "volumeMounts": [
                      {
                        "name": "kube-api-access-x7k2p",
                        "readOnly": true,
                        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"
                      }
                    ],
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent"
                  }
                ],
                "restartPolicy": "Always",
                "schedulerName": "default-scheduler",
                "preemptionPolicy": "PreemptLowerPriority",
                "fieldOfANewerVersion": {"kept": [1, 2.50]}
              },
              "status": {}
            }
            """.formatted(limits, limits));
    }

    static ObjectNode gpuPod() {
        return requesting(
                "{\"aliquot.io/vgpu\": \"1\", \"nvidia.com/gpumem\": \"3k\", \"nvidia.com/gpucores\": \"30\"}");
    }

    /** A pod whose namespace does not have to be read, because it names all that a namespace could. */
    static ObjectNode gpuPodWithCorePolicy() {
        ObjectNode pod = gpuPod();
        pod.withObject("/metadata/annotations")
                .put(Annotations.CORE_POLICY, "fixed")
                .put(Annotations.PRIORITY, "normal");
        return pod;
    }

    static ObjectNode spec(ObjectNode pod) {
        return (ObjectNode) pod.get("spec");
    }

    /** The container of {@link #requesting}, with another name. */
    static ObjectNode containerRequesting(String name, String limits) {
        return container(requesting(limits), 0).put("name", name);
    }

    static ObjectNode container(ObjectNode pod, int index) {
        return (ObjectNode) pod.at("/spec/containers/" + index);
    }

    /** The pod as the API server has it after the webhook's answer to its creation. */
    static ObjectNode mutated(Admission admission, ObjectNode pod) {
        JsonNode response = respond(AdmissionReviewTest.review(pod), admission);
        if (!response.get("allowed").booleanValue()) {
            throw new DeniedException(response.at("/status/message").stringValue());
        }
        return response.has("patch")
                ? (ObjectNode) patched(JSON.readTree(response.get("patch").binaryValue()), pod)
                : pod.deepCopy();
    }

    /** The response of the answer to a review. */
    static JsonNode respond(ObjectNode review, Admission admission) {
        JsonNode answer = JSON.readTree(answer(review.toString(), read -> admission));
        assertThat(answer.get("kind").stringValue()).isEqualTo("AdmissionReview");
        assertThat(answer.get("apiVersion").stringValue()).isEqualTo("admission.k8s.io/v1");
        return answer.get("response");
    }

    static byte[] answer(String body, Function<AdmissionReview, Admission> admission) {
        return answer(new ReviewMemory(ApiServers.UNKNOWN), body, admission);
    }

    static byte[] answer(ReviewMemory memory, String body, Function<AdmissionReview, Admission> admission) {
        return answer(memory, body, AdmissionReview.Oversized.DENIED, admission);
    }

    static byte[] answer(
            ReviewMemory memory,
            String body,
            AdmissionReview.Oversized oversized,
            Function<AdmissionReview, Admission> admission) {
        try (ReviewMemory.Share share = memory.share(InetAddress.getLoopbackAddress())) {
            return AdmissionReview.answer(
                    new ByteArrayInputStream(body.getBytes(StandardCharsets.UTF_8)), share, oversized, admission);
        }
    }
}
