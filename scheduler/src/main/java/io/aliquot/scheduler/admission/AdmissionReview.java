package io.aliquot.scheduler.admission;

import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import tools.jackson.core.JacksonException;
import tools.jackson.core.StreamReadFeature;
import tools.jackson.databind.DeserializationFeature;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * The request of an AdmissionReview (admission.k8s.io/v1, k8s.io/api/admission/v1/types.go) about a pod.
 *
 * @param uid the request's, repeated in the response
 * @param operation what the API server is about to do
 * @param pod as the user and earlier webhooks wrote it, with the API server's defaults
 * @param existingContainers the names of the containers that the stored pod has; empty for {@link Operation#CREATE}
 */
record AdmissionReview(String uid, Operation operation, ObjectNode pod, Set<String> existingContainers) {
    enum Operation {
        CREATE,
        /** UPDATE of the subresource {@code ephemeralcontainers}, as by {@code kubectl debug}. */
        ADD_EPHEMERAL_CONTAINER
    }

    private static final String KIND = "AdmissionReview";
    private static final String VERSION = "admission.k8s.io/v1";
    private static final int FORBIDDEN = 403;
    private static final JsonMapper JSON = JsonMapper.builder()
            .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
            .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
            .build();

    AdmissionReview {
        existingContainers = Set.copyOf(existingContainers);
    }

    /** @throws MalformedReviewException if the body is not an AdmissionReview of one of the {@link Operation}s */
    static AdmissionReview parse(byte[] body) {
        if (!(read(body) instanceof ObjectNode review)
                || !hasText(review, "kind", KIND)
                || !hasText(review, "apiVersion", VERSION)) {
            throw new MalformedReviewException("expected an AdmissionReview of " + VERSION + " in JSON");
        }
        ObjectNode request = JsonTree.object(review, "request")
                .orElseThrow(() -> new MalformedReviewException("expected the AdmissionReview to have a request"));
        String uid = JsonTree.text(request, "uid")
                .orElseThrow(() -> new MalformedReviewException("expected the request to have a uid"));
        Operation operation = operation(request);
        ObjectNode pod = object(request, "object");
        return switch (operation) {
            case CREATE -> new AdmissionReview(uid, operation, pod, Set.of());
            case ADD_EPHEMERAL_CONTAINER ->
                new AdmissionReview(uid, operation, pod, containerNames(object(request, "oldObject")));
        };
    }

    private static Operation operation(ObjectNode request) {
        boolean pod = JsonTree.object(request, "kind")
                .filter(kind -> hasText(kind, "kind", "Pod")
                        && hasText(kind, "version", "v1")
                        && JsonTree.text(kind, "group").isEmpty())
                .isPresent();
        if (pod
                && hasText(request, "operation", "CREATE")
                && JsonTree.text(request, "subResource").isEmpty()) {
            return Operation.CREATE;
        }
        if (pod && hasText(request, "operation", "UPDATE") && hasText(request, "subResource", "ephemeralcontainers")) {
            return Operation.ADD_EPHEMERAL_CONTAINER;
        }
        throw unexpectedOperation("the CREATE of a v1 Pod, or the UPDATE of its ephemeralcontainers");
    }

    private static Set<String> containerNames(ObjectNode pod) {
        return JsonContainer.withEphemeral(pod).stream()
                .map(JsonContainer::name)
                .collect(Collectors.toSet());
    }

    private static ObjectNode object(ObjectNode request, String field) {
        return JsonTree.object(request, field)
                .orElseThrow(() -> new MalformedReviewException("expected the request to have an " + field));
    }

    private static MalformedReviewException unexpectedOperation(String expected) {
        return new MalformedReviewException(
                "expected " + expected + "; check the rules of the MutatingWebhookConfiguration");
    }

    /** @throws MalformedReviewException if the pod exists already */
    void requireCreation() {
        if (operation != Operation.CREATE) {
            throw unexpectedOperation("the CREATE of a v1 Pod");
        }
    }

    /** The AdmissionReview with the response, as JSON. */
    byte[] respond(Admission admission) {
        ObjectNode admitted = pod.deepCopy();
        List<String> warnings;
        try {
            warnings = admission.admit(admitted);
        } catch (DeniedException e) {
            ObjectNode response = response(false);
            response.putObject("status")
                    .put("code", FORBIDDEN)
                    .put("reason", "Forbidden")
                    .put("message", e.getMessage());
            return print(response);
        }
        ObjectNode response = response(true);
        if (!warnings.isEmpty()) {
            warnings.forEach(response.putArray("warnings")::add); // kubectl prints them
        }
        ArrayNode patch = JsonPatch.between(pod, admitted);
        if (!patch.isEmpty()) {
            // Jackson writes bytes in base64, which is how Go reads the field's type []byte.
            response.put("patchType", "JSONPatch").put("patch", JSON.writeValueAsBytes(patch));
        }
        return print(response);
    }

    private ObjectNode response(boolean allowed) {
        return JSON.createObjectNode().put("uid", uid).put("allowed", allowed);
    }

    private static byte[] print(ObjectNode response) {
        ObjectNode review = JSON.createObjectNode().put("kind", KIND).put("apiVersion", VERSION);
        review.set("response", response);
        return JSON.writeValueAsBytes(review);
    }

    private static JsonNode read(byte[] body) {
        try {
            return JSON.readTree(body);
        } catch (JacksonException e) {
            throw new MalformedReviewException("expected JSON: " + e.getOriginalMessage());
        }
    }

    private static boolean hasText(ObjectNode object, String field, String value) {
        return JsonTree.text(object, field).filter(value::equals).isPresent();
    }
}
