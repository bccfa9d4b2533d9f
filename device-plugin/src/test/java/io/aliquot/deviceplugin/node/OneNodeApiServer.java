package io.aliquot.deviceplugin.node;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * An API server that has one Node and no other object: list, watch and patches of the Node, over HTTP without TLS and
 * without access control. For another process, {@link #client} connects to it.
 */
public final class OneNodeApiServer implements AutoCloseable {
    private static final JsonMapper JSON = new JsonMapper();
    private static final Duration TIMEOUT = Duration.ofSeconds(15);
    private static final Pattern TIMEOUT_SECONDS = Pattern.compile("timeoutSeconds=([0-9]{1,5})");

    private final HttpServer server;
    private final ExecutorService threads = Executors.newCachedThreadPool();

    @GuardedBy("this")
    private final ObjectNode node;

    @GuardedBy("this")
    private long version = 1;

    @GuardedBy("this")
    private boolean closed;

    /** Serves a Node with this name and the label {@code gpu=on} on a free port of this host. */
    public OneNodeApiServer(String name) throws IOException {
        node = JSON.createObjectNode();
        ObjectNode metadata = node.putObject("metadata");
        metadata.put("name", name).put("uid", "11111111-2222-3333-4444-555555555555");
        metadata.putObject("labels").put("gpu", "on");
        metadata.putObject("annotations");
        node.putObject("status").putObject("nodeInfo").put("containerRuntimeVersion", "containerd://2.2.0");
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(threads);
        server.createContext("/", this::answer);
        server.start();
    }

    /** The port. */
    public int port() {
        return server.getAddress().getPort();
    }

    /** A client for the server of such a port; it sends the token of a file, which may be any. */
    public static ApiServerClient client(int port, Path token) {
        return new ApiServerClient(URI.create("http://127.0.0.1:" + port), HttpClient.newHttpClient(), token, TIMEOUT);
    }

    /** The Node as it is now. */
    public synchronized ObjectNode node() {
        ObjectNode copy = node.deepCopy();
        ((ObjectNode) copy.path("metadata")).put("resourceVersion", Long.toString(version));
        return copy;
    }

    /** Sets an annotation, as a client of the cluster does. */
    public synchronized void annotate(String name, String value) {
        ((ObjectNode) node.path("metadata").path("annotations")).put(name, value);
        changed();
    }

    @GuardedBy("this")
    private void changed() {
        version++;
        notifyAll();
    }

    @Override
    public void close() {
        synchronized (this) {
            closed = true;
            notifyAll();
        }
        server.stop(0);
        threads.shutdownNow();
    }

    private void answer(HttpExchange exchange) throws IOException {
        String path = exchange.getRequestURI().getPath();
        String query = String.valueOf(exchange.getRequestURI().getQuery());
        boolean ofNodes = path.equals("/api/v1/nodes");
        try (exchange) {
            if (exchange.getRequestMethod().equals("PATCH") && path.startsWith("/api/v1/nodes/")) {
                send(
                        exchange,
                        200,
                        patch(JSON.readTree(exchange.getRequestBody().readAllBytes())));
            } else if (ofNodes && query.contains("watch=true")) {
                watch(exchange, query);
            } else if (ofNodes) {
                ObjectNode now = node();
                ObjectNode list = JSON.createObjectNode();
                list.putObject("metadata")
                        .set("resourceVersion", now.path("metadata").path("resourceVersion"));
                list.putArray("items").add(now);
                send(exchange, 200, list);
            } else {
                send(exchange, 404, JSON.createObjectNode().put("message", "there is no " + path));
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** Sends the Node at each change, until the time is over that the client has asked for. */
    private void watch(HttpExchange exchange, String query) throws IOException, InterruptedException {
        Matcher seconds = TIMEOUT_SECONDS.matcher(query);
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds.find() ? Long.parseLong(seconds.group(1)) : 60);
        exchange.sendResponseHeaders(200, 0);
        OutputStream events = exchange.getResponseBody();
        long sent = 0;
        while (System.nanoTime() < end) {
            ObjectNode event = JSON.createObjectNode().put("type", "MODIFIED");
            synchronized (this) {
                if (closed) {
                    return;
                }
                if (sent == version) {
                    wait(Math.max(1, TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime())));
                    continue;
                }
                sent = version;
                event.set("object", node());
            }
            events.write((event + "\n").getBytes(StandardCharsets.UTF_8));
            events.flush();
        }
    }

    private synchronized ObjectNode patch(JsonNode change) {
        merge(node, change);
        changed();
        return node();
    }

    /** RFC 7386, and in lists, which only strategic merge patches of the Node's conditions have, by the key {@code type}. */
    private static void merge(ObjectNode object, JsonNode change) {
        change.properties().forEach(field -> {
            JsonNode value = field.getValue();
            if (value.isNull()) {
                object.remove(field.getKey());
            } else if (value.isArray()) {
                ArrayNode list = object.withArray(field.getKey());
                value.forEach(element -> mergeByType(list, element));
            } else if (value.isObject()) {
                merge(object.withObject("/" + field.getKey().replace("~", "~0").replace("/", "~1")), value);
            } else {
                object.set(field.getKey(), value);
            }
        });
    }

    private static void mergeByType(ArrayNode list, JsonNode element) {
        for (int i = list.size() - 1; i >= 0; i--) {
            if (list.get(i).path("type").equals(element.path("type"))) {
                list.remove(i);
            }
        }
        if (!element.path("$patch").asString("").equals("delete")) {
            list.add(element);
        }
    }

    private static void send(HttpExchange exchange, int status, JsonNode body) throws IOException {
        byte[] bytes = body.toString().getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(status, bytes.length);
        exchange.getResponseBody().write(bytes);
    }
}
