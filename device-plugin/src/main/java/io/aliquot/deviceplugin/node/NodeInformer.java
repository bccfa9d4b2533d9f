package io.aliquot.deviceplugin.node;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.MappingIterator;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.InputStream;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The Node through a watch on it alone, and merge patches that name nothing but what changes. */
public final class NodeInformer implements NodeClient {
    private static final Logger LOG = System.getLogger(NodeInformer.class.getName());
    private static final ObjectMapper JSON = new ObjectMapper(new JsonFactory());
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    /** The server ends a watch after this; one that goes on a while longer has lost its server. */
    private static final Duration WATCH = Duration.ofMinutes(4);

    private static final Duration OVERDUE = WATCH.plusSeconds(30);
    private static final Duration SHORTEST_PAUSE = Duration.ofMillis(500);
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(30);

    // Whole numbers as the API server prints them (k8s.io/apimachinery, pkg/api/resource).
    private static final Pattern WHOLE = Pattern.compile("([0-9]{1,9})(k|M|G|Ki|Mi|Gi)?");
    private static final Map<String, Long> UNITS = Map.of(
            "", 1L, "k", 1_000L, "M", 1_000_000L, "G", 1_000_000_000L, "Ki", 1L << 10, "Mi", 1L << 20, "Gi", 1L << 30);

    private final ApiServerClient server;
    private final String name;
    private final Runnable changed;
    private final Thread thread;
    private volatile boolean closed;

    // Guarded by this.
    private Optional<JsonNode> latest = Optional.empty();
    private Optional<InputStream> stream = Optional.empty();
    private long streamSince;

    /**
     * Starts watching, for ever and through failures.
     *
     * @param name the Node's, of a valid form
     * @param changed called at each change
     */
    public NodeInformer(ApiServerClient server, String name, Runnable changed) {
        this.server = server;
        this.name = name;
        this.changed = changed;
        thread = new Thread(this::run, "node");
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public synchronized Optional<NodeView> latest() {
        if (stream.isPresent() && System.nanoTime() - streamSince > OVERDUE.toNanos()) {
            closeStream();
        }
        return latest.map(NodeInformer::view);
    }

    @Override
    public void annotate(String key, String value) throws NodeWriteException {
        ObjectNode patch = NODES.objectNode();
        patch.putObject("metadata").putObject("annotations").put(key, value);
        patch("/api/v1/nodes/" + name, patch);
    }

    @Override
    public void putResources(Map<String, Long> resources) throws NodeWriteException {
        ObjectNode patch = NODES.objectNode();
        ObjectNode status = patch.putObject("status");
        for (String field : new String[] {"capacity", "allocatable"}) {
            ObjectNode amounts = status.putObject(field);
            new TreeMap<>(resources).forEach((resource, amount) -> amounts.put(resource, Long.toString(amount)));
        }
        patch("/api/v1/nodes/" + name + "/status", patch);
    }

    @Override
    public void close() {
        closed = true;
        synchronized (this) {
            closeStream();
        }
        thread.interrupt();
    }

    private void patch(String path, JsonNode patch) throws NodeWriteException {
        try {
            see(server.mergePatch(path, patch));
        } catch (IOException e) {
            throw new NodeWriteException("cannot write to node " + name + ": " + e.getMessage(), e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new NodeWriteException("interrupted while writing to node " + name, e);
        }
    }

    private void run() {
        String selector = "/api/v1/nodes?fieldSelector=metadata.name%3D" + name;
        Duration pause = SHORTEST_PAUSE;
        String said = "";
        while (!closed) {
            try {
                JsonNode list = server.get(selector);
                seeList(list);
                said = "";
                pause = SHORTEST_PAUSE;
                String version = list.path("metadata").path("resourceVersion").asText();
                follow(server.watch(selector + "&watch=true&allowWatchBookmarks=true&timeoutSeconds="
                        + WATCH.toSeconds() + "&resourceVersion=" + version));
            } catch (IOException e) {
                String sentence = "cannot watch node " + name + ", trying on: " + e;
                if (!closed && !sentence.equals(said)) {
                    LOG.log(Level.WARNING, sentence);
                    said = sentence;
                }
            } catch (InterruptedException e) {
                return; // closed
            }
            try {
                Thread.sleep(pause.toMillis());
            } catch (InterruptedException e) {
                return; // closed
            }
            Duration doubled = pause.multipliedBy(2);
            pause = doubled.compareTo(LONGEST_PAUSE) < 0 ? doubled : LONGEST_PAUSE;
        }
    }

    /** Reads events until the stream ends, however that is; what was missed then shows in the next list. */
    private void follow(InputStream events) throws IOException {
        synchronized (this) {
            stream = Optional.of(events);
            streamSince = System.nanoTime();
        }
        try (events;
                MappingIterator<JsonNode> each = JSON.readerFor(JsonNode.class).readValues(events)) {
            while (!closed && each.hasNextValue()) {
                JsonNode event = each.nextValue();
                switch (event.path("type").asText()) {
                    case "ADDED", "MODIFIED" -> see(event.path("object"));
                    case "DELETED" -> forget();
                    case "ERROR" -> {
                        return; // our version is too old: list again
                    }
                    default -> {} // a bookmark
                }
            }
        } finally {
            synchronized (this) {
                stream = Optional.empty();
            }
        }
    }

    private void seeList(JsonNode list) {
        JsonNode items = list.path("items");
        if (items.isEmpty()) {
            forget();
        } else {
            see(items.get(0));
        }
    }

    private void see(JsonNode node) {
        synchronized (this) {
            // The watch may tell of a state that was before our own write.
            if (latest.isPresent() && sameNode(latest.get(), node) && version(node) < version(latest.get())) {
                return;
            }
            latest = Optional.of(node);
        }
        changed.run();
    }

    /** Without the Node there is nothing to write to; the kubelet makes it anew. */
    private void forget() {
        synchronized (this) {
            latest = Optional.empty();
        }
        changed.run();
    }

    private void closeStream() {
        try {
            if (stream.isPresent()) {
                stream.get().close();
            }
        } catch (IOException e) {
            LOG.log(Level.DEBUG, "closing a watch", e);
        }
        stream = Optional.empty();
    }

    private static boolean sameNode(JsonNode one, JsonNode other) {
        return one.path("metadata").path("uid").equals(other.path("metadata").path("uid"));
    }

    private static long version(JsonNode node) {
        return node.path("metadata").path("resourceVersion").asLong(Long.MAX_VALUE);
    }

    private static NodeView view(JsonNode node) {
        JsonNode metadata = node.path("metadata");
        JsonNode status = node.path("status");
        return new NodeView(
                texts(metadata.path("labels")),
                texts(metadata.path("annotations")),
                amounts(status.path("capacity")),
                amounts(status.path("allocatable")));
    }

    private static Map<String, String> texts(JsonNode object) {
        Map<String, String> texts = new HashMap<>();
        object.properties()
                .forEach(field -> texts.put(field.getKey(), field.getValue().asText()));
        return texts;
    }

    private static Map<String, Long> amounts(JsonNode object) {
        Map<String, Long> amounts = new HashMap<>();
        texts(object).forEach((resource, quantity) -> {
            Matcher whole = WHOLE.matcher(quantity);
            if (resource.contains("/") && whole.matches()) {
                String unit = whole.group(2) == null ? "" : whole.group(2);
                amounts.put(resource, Math.multiplyExact(Long.parseLong(whole.group(1)), UNITS.getOrDefault(unit, 1L)));
            }
        });
        return amounts;
    }
}
