package io.aliquot.scheduler.admission;

import io.aliquot.api.names.FormatException;
import io.aliquot.api.names.PodDefaults;
import io.aliquot.scheduler.kubernetes.client.ApiServerClient;
import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

/**
 * What namespaces say about their pods by annotations, which the API server does not send to webhooks. Reads the
 * namespace for each pod whose meaning depends on it, and not from a watch: a pod that is created right after the
 * annotation gets what it says.
 *
 * @param apiServer whose namespaces are read
 */
record Namespaces(ApiServerClient apiServer) {
    /** The API server waits 10 s for the webhook. */
    private static final Duration TIMEOUT = Duration.ofSeconds(5);

    private static final String METADATA =
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    private static final JsonMapper JSON = JsonMapper.shared();

    /**
     * The defaults with the annotations of a namespace.
     *
     * @throws DeniedException if they are invalid or cannot be read
     */
    PodDefaults podDefaults(String namespace, PodDefaults defaults) {
        Map<String, String> annotations = annotations(namespace);
        try {
            return defaults.with(annotations);
        } catch (FormatException e) {
            throw new DeniedException(
                    "the namespace " + namespace + " has an invalid annotation: " + e.getMessage(), e);
        }
    }

    private Map<String, String> annotations(String namespace) {
        try {
            ApiServerClient.Answer answer = apiServer.get("/api/v1/namespaces/" + namespace, METADATA, TIMEOUT);
            if (!answer.isSuccessful()) {
                throw DeniedException.unreadable("namespace " + namespace, "status " + answer.code());
            }
            JsonNode metadata = JSON.readTree(answer.body()).path("metadata");
            return metadata instanceof ObjectNode object ? JsonTree.texts(object, "annotations") : Map.of();
        } catch (IOException | JacksonException e) {
            throw DeniedException.unreadable("namespace " + namespace, String.valueOf(e.getMessage()));
        }
    }
}
