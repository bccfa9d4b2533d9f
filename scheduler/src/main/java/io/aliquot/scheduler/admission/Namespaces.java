package io.aliquot.scheduler.admission;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.pods.CoreRules;
import io.aliquot.api.pods.PodDefaults;
import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.extensionapi.objects.NamespaceRules;
import io.aliquot.scheduler.settings.Settings;
import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import org.springframework.stereotype.Component;
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
 * @param settings with the defaults and rules of namespaces that set none
 */
@Component
record Namespaces(ApiServerClient apiServer, Settings settings) implements NamespaceRules {
    /** The API server waits 10 s for the webhook. */
    private static final Duration TIMEOUT = Duration.ofSeconds(5);

    private static final String METADATA =
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    private static final JsonMapper JSON = JsonMapper.shared();

    @Override
    public CoreRules of(String namespace) {
        try {
            return podDefaults(namespace).rules();
        } catch (DeniedException e) {
            throw StatusException.unavailable(String.valueOf(e.getMessage()));
        }
    }

    /**
     * The defaults with the annotations of a namespace.
     *
     * @throws DeniedException if they are invalid or cannot be read
     */
    PodDefaults podDefaults(String namespace) {
        Map<String, String> annotations = annotations(namespace);
        try {
            return settings.podDefaults().with(annotations);
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
