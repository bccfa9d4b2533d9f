package io.aliquot.simulator;

import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.KubernetesResourceList;
import io.fabric8.kubernetes.api.model.ListOptions;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JacksonException;
import tools.jackson.core.exc.JacksonIOException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.MappingIterator;
import tools.jackson.databind.json.JsonMapper;

/**
 * The nodes and pods of a cluster, as its API server returns them.
 *
 * @param otherKinds the number of all other objects, by their kind
 */
record Snapshot(List<Node> nodes, List<Pod> pods, Map<String, Integer> otherKinds) {
    /** The file name of standard input. */
    static final String STDIN = "-";

    private static final String HINT = "; expected what kubectl get nodes,pods -A -o json prints";
    private static final long PAGE = 500;

    private Snapshot() {
        this(new ArrayList<>(), new ArrayList<>(), new TreeMap<>());
    }

    /**
     * Reads files of lists or single objects in JSON; a file may contain several.
     *
     * @param stdin is read for {@value #STDIN}
     * @throws TraceException if a file has another format, or no file contains a node
     */
    static Snapshot of(List<String> files, InputStream stdin) {
        var snapshot = new Snapshot();
        var reader = new Reader(snapshot);
        for (String file : files) {
            reader.read(file, stdin);
        }
        if (snapshot.nodes().isEmpty()) {
            throw new TraceException(String.join(", ", files) + ": no nodes" + HINT);
        }
        return snapshot;
    }

    /**
     * Lists the nodes and pods of a cluster page by page. Writes nothing.
     *
     * @throws TraceException if the API server does not answer, or denies the request
     */
    static Snapshot of(KubernetesClient kubernetes) {
        var snapshot = new Snapshot();
        try {
            addPages(options -> kubernetes.nodes().list(options), snapshot.nodes());
            addPages(options -> kubernetes.pods().inAnyNamespace().list(options), snapshot.pods());
        } catch (KubernetesClientException e) {
            throw new TraceException(
                    "cannot list nodes and pods of " + kubernetes.getMasterUrl() + ": " + e.getMessage()
                            + "; select another cluster with --context or --kubeconfig, or pass a dump"
                            + " with --dump",
                    e);
        }
        return snapshot;
    }

    private static <T extends HasMetadata> void addPages(
            Function<ListOptions, ? extends KubernetesResourceList<T>> list, List<T> all) {
        String next = null;
        do {
            var page = list.apply(
                    new ListOptionsBuilder().withLimit(PAGE).withContinue(next).build());
            all.addAll(page.getItems());
            next = page.getMetadata().getContinue();
        } while (next != null && !next.isEmpty());
    }

    private static final class Reader {
        private final JsonMapper json = new JsonMapper();
        private final KubernetesSerialization kubernetes = new KubernetesSerialization();
        private final Snapshot snapshot;

        Reader(Snapshot snapshot) {
            this.snapshot = snapshot;
        }

        void read(String file, InputStream stdin) {
            String name = file.equals(STDIN) ? "standard input" : file;
            try (InputStream in = file.equals(STDIN) ? stdin : Files.newInputStream(Path.of(file));
                    MappingIterator<JsonNode> documents =
                            json.readerFor(JsonNode.class).readValues(in)) {
                while (documents.hasNextValue()) {
                    document(documents.nextValue());
                }
            } catch (JacksonIOException e) {
                throw new TraceException("cannot read " + name + ": " + e.getCause(), e);
            } catch (JacksonException e) {
                var at = e.getLocation();
                throw new TraceException(
                        name + (at == null ? "" : ":" + at.getLineNr()) + ": not JSON: " + e.getOriginalMessage()
                                + HINT,
                        e);
            } catch (IOException e) {
                throw new TraceException("cannot read " + name + ": " + e, e);
            } catch (IllegalArgumentException e) {
                throw new TraceException(name + ": " + e.getMessage() + HINT, e);
            }
        }

        private void document(JsonNode document) {
            String kind = document.path("kind").asString("");
            JsonNode items = document.get("items");
            if (items != null && items.isArray()) {
                // The items of a NodeList have no kind.
                String of = kind.endsWith("List") ? kind.substring(0, kind.length() - "List".length()) : "";
                items.forEach(item -> object(item.path("kind").asString(of), item));
            } else {
                object(kind, document);
            }
        }

        private void object(String kind, JsonNode object) {
            switch (kind) {
                case "Node" -> snapshot.nodes().add(named(object, Node.class, Node::getMetadata));
                case "Pod" -> snapshot.pods().add(named(object, Pod.class, Pod::getMetadata));
                case "" -> throw new IllegalArgumentException("an object without a kind");
                default -> snapshot.otherKinds().merge(kind, 1, Integer::sum);
            }
        }

        private <T> T named(
                JsonNode object,
                Class<T> type,
                Function<T, io.fabric8.kubernetes.api.model.@Nullable ObjectMeta> meta) {
            T read;
            try {
                read = kubernetes.unmarshal(object.toString(), type);
            } catch (KubernetesClientException e) {
                throw new IllegalArgumentException(
                        "a " + type.getSimpleName() + " that is not one: " + e.getMessage(), e);
            }
            var metadata = meta.apply(read);
            if (metadata == null || metadata.getName() == null) {
                throw new IllegalArgumentException("a " + type.getSimpleName() + " without a name");
            }
            return read;
        }
    }
}
