package io.aliquot.training;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.zip.GZIPOutputStream;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JsonPointer;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

/**
 * A stand-in for kube-apiserver over TLS on 127.0.0.1: it keeps objects, lists and watches them (pods and nodes in
 * protobuf, others in JSON), and binds pods. It checks neither requests nor users, and knows only what the scheduler
 * asks for. Its certificate is that of its front proxy, too.
 */
final class ApiServer {
    static final JsonMapper JSON = JsonMapper.builder().build();
    private static final Set<String> RESOURCES = Set.of(
            "pods", "nodes", "poddisruptionbudgets", "leases", "secrets", "events", "mutatingwebhookconfigurations");
    static final String USER_HEADER = "X-Remote-User";
    static final String PASSWORD = "training";

    private static final String AUTHENTICATION =
            "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

    private final Path kubeconfig;
    private final KeyStore keys;
    private final AtomicInteger bound = new AtomicInteger();

    /** By path below the server's address. */
    private final Map<String, ObjectNode> objects = new HashMap<>();
    /** By resource, everything that happened. */
    private final Map<String, List<Event>> events = new HashMap<>();

    private int version = 1;

    @SuppressWarnings("ArrayRecordComponent") // never compared
    private record Event(int version, byte[] bytes) {}

    ApiServer() throws IOException, InterruptedException {
        Path folder = temporary(Files.createTempDirectory("training"));
        Path store = temporary(folder.resolve("keys.p12"));
        keytool("-genkeypair -alias server -keyalg EC -dname CN=127.0.0.1 -ext san=ip:127.0.0.1 -validity 2", store);
        Path certificate = temporary(folder.resolve("ca.crt"));
        keytool("-exportcert -alias server -rfc -file " + certificate, store);
        var server = HttpsServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        keys = load(store);
        server.setHttpsConfigurator(new HttpsConfigurator(tls(keys)));
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", this::handle);
        server.start();
        kubeconfig = temporary(folder.resolve("kubeconfig"));
        Files.writeString(kubeconfig, """
                apiVersion: v1
                kind: Config
                clusters: [{name: c, cluster: {server: "https://127.0.0.1:%d", certificate-authority: "%s"}}]
                users: [{name: u, user: {token: training}}]
                contexts: [{name: x, context: {cluster: c, user: u}}]
                current-context: x
                """.formatted(server.getAddress().getPort(), certificate));
        ObjectNode authentication = JSON.createObjectNode();
        authentication
                .putObject("data")
                .put("requestheader-client-ca-file", Files.readString(certificate))
                .put("requestheader-allowed-names", "[]")
                .put("requestheader-username-headers", "[\"" + USER_HEADER + "\"]");
        put(AUTHENTICATION, authentication);
    }

    private static Path temporary(Path path) {
        path.toFile().deleteOnExit();
        return path;
    }

    private static void keytool(String arguments, Path store) throws IOException, InterruptedException {
        var command = new ArrayList<String>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "keytool").toString());
        command.addAll(List.of(arguments.split(" ")));
        command.addAll(List.of("-keystore", store.toString(), "-storetype", "PKCS12", "-storepass", PASSWORD));
        int status = new ProcessBuilder(command)
                .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .redirectErrorStream(true)
                .start()
                .waitFor();
        if (status != 0) {
            throw new IOException("keytool ended with " + status);
        }
    }

    private static KeyStore load(Path store) throws IOException {
        try (InputStream in = Files.newInputStream(store)) {
            var keys = KeyStore.getInstance("PKCS12");
            keys.load(in, PASSWORD.toCharArray());
            return keys;
        } catch (GeneralSecurityException e) {
            throw new IOException(e);
        }
    }

    private static SSLContext tls(KeyStore keys) throws IOException {
        try {
            var managers = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            managers.init(keys, PASSWORD.toCharArray());
            var context = SSLContext.getInstance("TLS");
            context.init(managers.getKeyManagers(), null, null);
            return context;
        } catch (GeneralSecurityException e) {
            throw new IOException(e);
        }
    }

    /** The front proxy's key and certificate, under {@link #PASSWORD}. */
    KeyStore frontProxy() {
        return keys;
    }

    Path kubeconfig() {
        return kubeconfig;
    }

    /** How many pods were bound. */
    int bound() {
        return bound.get();
    }

    /** Stores an object under the next version, and tells the watches. */
    synchronized void put(String path, ObjectNode object) {
        version++;
        object.withObject("metadata").put("resourceVersion", Integer.toString(version));
        happened(resource(path), objects.put(path, object) == null ? "ADDED" : "MODIFIED", object);
    }

    synchronized void delete(String path) {
        ObjectNode object = objects.remove(path);
        if (object != null) {
            version++;
            object.withObject("metadata").put("resourceVersion", Integer.toString(version));
            happened(resource(path), "DELETED", object);
        }
    }

    @Nullable
    synchronized ObjectNode get(String path) {
        ObjectNode object = objects.get(path);
        return object == null ? null : object.deepCopy();
    }

    private void happened(String resource, String type, ObjectNode object) {
        byte[] bytes = KubernetesProtobuf.encodes(resource)
                ? KubernetesProtobuf.event(type, object)
                : ("{\"type\":\"" + type + "\",\"object\":" + object + "}\n").getBytes(StandardCharsets.UTF_8);
        events.computeIfAbsent(resource, r -> new ArrayList<>()).add(new Event(version, bytes));
        notifyAll();
    }

    /** The plural in a path of a collection, an object or a subresource. */
    private static String resource(String path) {
        String last = "";
        for (String segment : path.split("/", -1)) {
            if (RESOURCES.contains(segment)) {
                last = segment;
            }
        }
        return last;
    }

    private void handle(HttpExchange exchange) {
        String path = exchange.getRequestURI().getPath();
        try (exchange) {
            byte[] body = exchange.getRequestBody().readAllBytes();
            boolean collection = RESOURCES.contains(path.substring(path.lastIndexOf('/') + 1));
            switch (exchange.getRequestMethod()) {
                case "GET" -> {
                    if (collection) {
                        listOrWatch(exchange, resource(path));
                    } else {
                        answer(exchange, 200, get(path));
                    }
                }
                case "POST" -> answer(exchange, 201, post(path, collection, (ObjectNode) JSON.readTree(body)));
                case "PUT" -> {
                    var object = (ObjectNode) JSON.readTree(body);
                    put(path, object);
                    answer(exchange, 200, object);
                }
                case "PATCH" -> answer(exchange, 200, patch(path, JSON.readTree(body)));
                default -> answer(exchange, 404, null);
            }
        } catch (IOException | InterruptedException e) {
            // The scheduler closed the connection.
        }
    }

    private synchronized ObjectNode post(String path, boolean collection, ObjectNode body) {
        if (path.endsWith("/binding")) {
            String podPath = path.substring(0, path.length() - "/binding".length());
            ObjectNode pod = get(podPath);
            if (pod != null) {
                ClusterObjects.bind(pod, body);
                put(podPath, pod);
                bound.incrementAndGet();
            }
            return JSON.createObjectNode()
                    .put("kind", "Status")
                    .put("apiVersion", "v1")
                    .put("status", "Success");
        }
        if (collection) {
            put(path + "/" + body.at("/metadata/name").asString(), body);
        }
        return body;
    }

    /** A merge patch that removes nothing, or the additions of a JSON patch. */
    private synchronized @Nullable ObjectNode patch(String path, JsonNode patch) {
        ObjectNode object = get(path);
        if (object == null) {
            return null;
        }
        if (patch.isArray()) {
            for (JsonNode operation : patch.values()) {
                if (operation.path("op").asString().equals("add")) {
                    JsonPointer at = JsonPointer.compile(operation.path("path").asString());
                    ((ObjectNode) object.at(at.head())).set(at.last().getMatchingProperty(), operation.path("value"));
                }
            }
        } else {
            JSON.readerForUpdating(object).readValue(patch);
        }
        put(path, object);
        return object;
    }

    private static void answer(HttpExchange exchange, int code, @Nullable JsonNode object) throws IOException {
        byte[] body = (object == null
                        ? "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"code\":404}"
                        : object.toString())
                .getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(object == null ? 404 : code, body.length);
        exchange.getResponseBody().write(body);
    }

    private void listOrWatch(HttpExchange exchange, String resource) throws IOException, InterruptedException {
        String query = exchange.getRequestURI().getQuery();
        boolean protobuf = KubernetesProtobuf.encodes(resource);
        exchange.getResponseHeaders()
                .set("Content-Type", protobuf ? "application/vnd.kubernetes.protobuf" : "application/json");
        if (query != null && query.contains("watch=true")) {
            exchange.sendResponseHeaders(200, 0);
            exchange.getResponseBody().flush(); // the head, before anything happens
            watch(
                    exchange.getResponseBody(),
                    resource,
                    Integer.parseInt(query.replaceAll(".*resourceVersion=|&.*", "")));
            return;
        }
        byte[] list = compressed(list(resource, protobuf));
        exchange.getResponseHeaders().set("Content-Encoding", "gzip");
        exchange.sendResponseHeaders(200, list.length);
        exchange.getResponseBody().write(list);
    }

    private synchronized byte[] list(String resource, boolean protobuf) {
        List<JsonNode> items = new ArrayList<>();
        objects.forEach((path, object) -> {
            if (resource(path).equals(resource)) {
                items.add(object);
            }
        });
        ObjectNode list = JSON.createObjectNode()
                .put("kind", resource.equals("pods") ? "PodList" : resource.equals("nodes") ? "NodeList" : "List")
                .put("apiVersion", "v1");
        list.withObject("metadata").put("resourceVersion", Integer.toString(version));
        list.putArray("items").addAll(items);
        return protobuf
                ? KubernetesProtobuf.encode(list).toByteArray()
                : list.toString().getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] compressed(byte[] bytes) throws IOException {
        var out = new ByteArrayOutputStream();
        try (var gzip = new GZIPOutputStream(out)) {
            gzip.write(bytes);
        }
        return out.toByteArray();
    }

    private void watch(OutputStream out, String resource, int since) throws IOException, InterruptedException {
        int next = 0;
        while (true) {
            List<Event> news;
            synchronized (this) {
                List<Event> all = events.computeIfAbsent(resource, r -> new ArrayList<>());
                while (next >= all.size()) {
                    wait();
                }
                news = List.copyOf(all.subList(next, all.size()));
                next = all.size();
            }
            for (Event event : news) {
                if (event.version() > since) {
                    out.write(event.bytes());
                }
            }
            out.flush();
        }
    }
}
