package io.aliquot.scheduler.admission;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * The API server's question (admission.k8s.io/v1, k8s.io/api/admission/v1/types.go) about a pod that is to be created, or
 * about a container that is to be added to one.
 *
 * @param uid to be repeated in the answer
 * @param pod as the user and earlier webhooks made it, with the API server's defaults
 * @param before as it is; empty where it is to be created
 */
record AdmissionReview(String uid, ObjectNode pod, Optional<ObjectNode> before) {
    private static final String KIND = "AdmissionReview";
    private static final String VERSION = "admission.k8s.io/v1";
    private static final int FORBIDDEN = 403;
    private static final ObjectMapper JSON = JsonMapper.builder()
            .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
            .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
            .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
            .build();

    /** @throws MalformedReviewException where the body asks anything else */
    static AdmissionReview parse(byte[] body) {
        if (!(read(body) instanceof ObjectNode review)
                || !is(review, "kind", KIND)
                || !is(review, "apiVersion", VERSION)) {
            throw new MalformedReviewException("expected an AdmissionReview of " + VERSION + " in JSON");
        }
        ObjectNode request = JsonTree.object(review, "request")
                .orElseThrow(() -> new MalformedReviewException("expected the AdmissionReview to have a request"));
        String uid = JsonTree.text(request, "uid")
                .orElseThrow(() -> new MalformedReviewException("expected the request to have a uid"));
        Optional<ObjectNode> kind = JsonTree.object(request, "kind");
        boolean pod = kind.isPresent()
                && is(kind.get(), "kind", "Pod")
                && is(kind.get(), "version", "v1")
                && JsonTree.text(kind.get(), "group").isEmpty();
        boolean creates = is(request, "operation", "CREATE")
                && JsonTree.text(request, "subResource").isEmpty();
        boolean adds = is(request, "operation", "UPDATE") && is(request, "subResource", "ephemeralcontainers");
        if (!pod || !(creates || adds)) {
            throw notAsked("the CREATE of a v1 Pod, or the UPDATE of its ephemeralcontainers");
        }
        return new AdmissionReview(
                uid, object(request, "object"), adds ? Optional.of(object(request, "oldObject")) : Optional.empty());
    }

    private static ObjectNode object(ObjectNode request, String field) {
        return JsonTree.object(request, field)
                .orElseThrow(() -> new MalformedReviewException("expected the request to have an " + field));
    }

    private static MalformedReviewException notAsked(String what) {
        return new MalformedReviewException(
                "expected " + what + "; check the rules of the MutatingWebhookConfiguration");
    }

    /** @throws MalformedReviewException where it is about a pod that is there already */
    void requireCreation() {
        if (before.isPresent()) {
            throw notAsked("the CREATE of a v1 Pod");
        }
    }

    /** The names of the containers that the pod has already. */
    Set<String> there() {
        return before.stream()
                .flatMap(pod -> JsonContainer.withEphemeral(pod).stream())
                .map(JsonContainer::name)
                .collect(Collectors.toSet());
    }

    /** The answer, as JSON. */
    byte[] answer(Admission admission) {
        ObjectNode admitted = pod.deepCopy();
        try {
            admission.admit(admitted);
        } catch (DeniedException e) {
            ObjectNode response = response(false);
            response.putObject("status")
                    .put("code", FORBIDDEN)
                    .put("reason", "Forbidden")
                    .put("message", e.getMessage());
            return print(response);
        }
        ObjectNode response = response(true);
        ArrayNode patch = JsonPatch.between(pod, admitted);
        if (!patch.isEmpty()) {
            response.put("patchType", "JSONPatch").put("patch", bytes(patch)); // base64, as Go's []byte
        }
        return print(response);
    }

    private ObjectNode response(boolean allowed) {
        return JSON.createObjectNode().put("uid", uid).put("allowed", allowed);
    }

    private static byte[] print(ObjectNode response) {
        ObjectNode review = JSON.createObjectNode().put("kind", KIND).put("apiVersion", VERSION);
        review.set("response", response);
        return bytes(review);
    }

    private static byte[] bytes(JsonNode node) {
        try {
            return JSON.writeValueAsBytes(node);
        } catch (JsonProcessingException e) {
            throw new UncheckedIOException("a tree can always be written", e);
        }
    }

    private static JsonNode read(byte[] body) {
        try {
            return JSON.readTree(body);
        } catch (JsonProcessingException e) {
            throw new MalformedReviewException("expected JSON: " + e.getOriginalMessage());
        } catch (IOException e) {
            throw new UncheckedIOException("bytes in memory can always be read", e);
        }
    }

    private static boolean is(ObjectNode object, String field, String value) {
        return JsonTree.text(object, field).filter(value::equals).isPresent();
    }
}
