package io.aliquot.scheduler.admission;

import io.aliquot.scheduler.server.errors.Problems;
import java.io.InputStream;
import java.util.List;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.springframework.http.HttpStatus;
import tools.jackson.core.JacksonException;
import tools.jackson.core.exc.StreamConstraintsException;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

/**
 * The request of an AdmissionReview (admission.k8s.io/v1, k8s.io/api/admission/v1/types.go) about a pod.
 *
 * @param uid the request's, repeated in the response
 * @param operation what the API server is about to do
 * @param namespace of the pod
 * @param pod as the user and earlier webhooks wrote it, with the API server's defaults
 * @param existingContainers the names of the containers that the stored pod has; empty for {@link Operation#CREATE}
 */
record AdmissionReview(
        String uid, Operation operation, String namespace, ObjectNode pod, Set<String> existingContainers) {
    enum Operation {
        CREATE,
        /** UPDATE of the pod itself, as by {@code kubectl apply}. */
        UPDATE,
        /** UPDATE of the subresource {@code ephemeralcontainers}, as by {@code kubectl debug}. */
        ADD_EPHEMERAL_CONTAINER
    }

    /** What becomes of a pod of which {@link ReviewReader} may not keep enough. */
    enum Oversized {
        DENIED,
        /** For a pod that requests nothing of Aliquot: it is its neighbor, and a missing change is better than no pod. */
        UNCHANGED
    }

    private static final String KIND = "AdmissionReview";
    private static final String VERSION = "admission.k8s.io/v1";
    private static final int RETRY_SECONDS = 1;
    private static final JsonMapper JSON = JsonMapper.shared();

    AdmissionReview {
        existingContainers = Set.copyOf(existingContainers);
    }

    /**
     * Answers a review.
     *
     * @param body is not read to its end if the pod is too large
     * @param admission what to do with a pod of the review
     * @return an AdmissionReview with the response, as JSON
     * @throws MalformedReviewException if the body is not an AdmissionReview of one of the {@link Operation}s
     */
    static byte[] answer(
            InputStream body,
            ReviewMemory.Share memory,
            Oversized oversized,
            Function<AdmissionReview, Admission> admission) {
        ObjectNode review = JSON.createObjectNode();
        try {
            ReviewReader.read(body, review, memory);
            AdmissionReview parsed = of(review);
            return parsed.respond(admission.apply(parsed));
        } catch (DeniedException e) {
            return e.code() != HttpStatus.FORBIDDEN && oversized == Oversized.UNCHANGED
                    ? unchanged(review)
                    : denied(review, e);
        } catch (StreamConstraintsException e) {
            return oversized == Oversized.UNCHANGED ? unchanged(review) : denied(review, DeniedException.tooLarge());
        } catch (JacksonException e) {
            throw new MalformedReviewException("expected JSON: " + e.getOriginalMessage());
        }
    }

    private static byte[] unchanged(ObjectNode review) {
        ObjectNode response = response(uidOfPartial(review), true);
        response.putArray("warnings")
                .add(
                        "the pod is too large for Aliquot's webhook, which leaves it as it is: where NVIDIA's runtime is the"
                                + " default runtime, its containers see the GPUs that their images ask for");
        return print(response);
    }

    private static String uidOfPartial(ObjectNode review) {
        return JsonTree.object(review, "request")
                .flatMap(request -> JsonTree.text(request, "uid"))
                .orElseThrow(() -> new MalformedReviewException("expected the uid before the object"));
    }

    private static byte[] denied(ObjectNode review, DeniedException why) {
        ObjectNode response = response(uidOfPartial(review), false);
        ObjectNode status = response.putObject("status")
                .put("code", why.code().value())
                .put("reason", Problems.reason(why.code().value()))
                .put("message", why.getMessage());
        if (why.code() == HttpStatus.TOO_MANY_REQUESTS) {
            // The API server makes it a header, and client-go repeats the request (client-go 1.35, rest/with_retry.go).
            status.putObject("details").put("retryAfterSeconds", RETRY_SECONDS);
        }
        return print(response);
    }

    private static AdmissionReview of(ObjectNode review) {
        if (!hasText(review, "kind", KIND) || !hasText(review, "apiVersion", VERSION)) {
            throw new MalformedReviewException("expected an AdmissionReview of " + VERSION + " in JSON");
        }
        ObjectNode request = JsonTree.object(review, "request")
                .orElseThrow(() -> new MalformedReviewException("expected the AdmissionReview to have a request"));
        String uid = JsonTree.text(request, "uid")
                .orElseThrow(() -> new MalformedReviewException("expected the request to have a uid"));
        Operation operation = operation(request);
        String namespace = JsonTree.text(request, "namespace").orElse("");
        ObjectNode pod = object(request, "object");
        return switch (operation) {
            case CREATE, UPDATE -> new AdmissionReview(uid, operation, namespace, pod, Set.of());
            case ADD_EPHEMERAL_CONTAINER ->
                new AdmissionReview(uid, operation, namespace, pod, containerNames(object(request, "oldObject")));
        };
    }

    private static Operation operation(ObjectNode request) {
        boolean pod = JsonTree.object(request, "kind")
                .filter(kind -> hasText(kind, "kind", "Pod")
                        && hasText(kind, "version", "v1")
                        && JsonTree.text(kind, "group").isEmpty())
                .isPresent();
        if (pod && JsonTree.text(request, "subResource").isEmpty()) {
            if (hasText(request, "operation", "CREATE")) {
                return Operation.CREATE;
            }
            if (hasText(request, "operation", "UPDATE")) {
                return Operation.UPDATE;
            }
        }
        if (pod && hasText(request, "operation", "UPDATE") && hasText(request, "subResource", "ephemeralcontainers")) {
            return Operation.ADD_EPHEMERAL_CONTAINER;
        }
        throw unexpectedOperation("the CREATE or UPDATE of a v1 Pod, or the UPDATE of its ephemeralcontainers");
    }

    private static Set<String> containerNames(ObjectNode pod) {
        return JsonContainer.withEphemeral(EditedObject.of(pod)).stream()
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

    /** @throws MalformedReviewException if the API server is about to do something else */
    void require(Operation expected) {
        if (operation != expected) {
            throw unexpectedOperation("the " + expected + " of a v1 Pod");
        }
    }

    private byte[] respond(Admission admission) {
        EditedObject admitted = EditedObject.of(pod);
        List<String> warnings = admission.admit(admitted);
        ObjectNode response = response(uid, true);
        if (!warnings.isEmpty()) {
            warnings.forEach(response.putArray("warnings")::add); // kubectl prints them
        }
        if (!admitted.operations().isEmpty()) {
            // Jackson writes bytes in base64, which is how Go reads the field's type []byte.
            response.put("patchType", "JSONPatch").put("patch", JSON.writeValueAsBytes(admitted.operations()));
        }
        return print(response);
    }

    private static ObjectNode response(String uid, boolean allowed) {
        return JSON.createObjectNode().put("uid", uid).put("allowed", allowed);
    }

    private static byte[] print(ObjectNode response) {
        ObjectNode review = JSON.createObjectNode().put("kind", KIND).put("apiVersion", VERSION);
        review.set("response", response);
        return JSON.writeValueAsBytes(review);
    }

    private static boolean hasText(ObjectNode object, String field, String value) {
        return JsonTree.text(object, field).filter(value::equals).isPresent();
    }
}
