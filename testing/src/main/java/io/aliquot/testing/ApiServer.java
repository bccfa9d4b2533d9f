package io.aliquot.testing;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.aliquot.api.tls.TlsContext;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyPairGenerator;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * A real API server with its etcd, without controllers and without nodes other than those that a test creates. It
 * starts in about 4 s. Service account tokens, RBAC, the Node authorizer and NodeRestriction work as in a cluster. A
 * test can kill the API server and start it again.
 */
public final class ApiServer implements AutoCloseable {
    /** The namespace of the release and of the service accounts of {@link #account}. */
    public static final String NAMESPACE = "aliquot";

    private static final String ADMIN_TOKEN = "admin-of-this-test";
    private static final Duration START = Duration.ofSeconds(90);
    private static final String ETCD = "etcd";
    private static final String API_SERVER = "kube-apiserver";

    private final Map<String, List<String>> commands = new LinkedHashMap<>();
    private final Map<String, Process> processes = new ConcurrentHashMap<>();
    private final Path folder;
    private final int port;
    private final HttpClient http;

    /** A response of the API server. */
    public record Response(int code, String body, List<String> warnings) {
        /** A field of a JSON body, by its path; {@code "null"} if there is none. */
        @SuppressWarnings("unchecked")
        public String field(String... path) {
            Object value = new KubernetesSerialization().unmarshal(body, Map.class);
            for (String part : path) {
                value = value instanceof Map ? ((Map<String, Object>) value).get(part) : null;
            }
            return String.valueOf(value);
        }

        public Response expectSuccess() {
            if (code / 100 != 2) {
                throw new AssertionError("expected success, found " + code + "\n" + body);
            }
            return this;
        }
    }

    /** Starts etcd and the API server, the latter with more flags if given, with their files in {@code folder}. */
    public ApiServer(Path folder, String... flags) throws IOException, GeneralSecurityException, InterruptedException {
        this.folder = folder;
        Path programs = programs();
        int etcd = freePort();
        this.port = freePort();
        Path key = Files.writeString(folder.resolve("service-accounts.key"), privateKey());
        Path tokens = Files.writeString(folder.resolve("tokens"), ADMIN_TOKEN + ",admin,admin,system:masters\n");
        commands.put(
                ETCD,
                List.of(
                        programs.resolve(ETCD).toString(),
                        "--data-dir=" + folder.resolve("etcd"),
                        "--listen-client-urls=http://127.0.0.1:" + etcd,
                        "--advertise-client-urls=http://127.0.0.1:" + etcd,
                        "--listen-peer-urls=http://127.0.0.1:0",
                        "--unsafe-no-fsync",
                        "--log-level=error"));
        var apiServer = new ArrayList<>(List.of(
                programs.resolve(API_SERVER).toString(),
                "--etcd-servers=http://127.0.0.1:" + etcd,
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--endpoint-reconciler-type=none", // the others refuse that address, since 1.37
                "--secure-port=" + port,
                "--cert-dir=" + folder,
                "--token-auth-file=" + tokens,
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                // it needs a controller that creates the accounts
                "--disable-admission-plugins=ServiceAccount",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-account-signing-key-file=" + key,
                "--service-account-key-file=" + key,
                "--service-cluster-ip-range=10.96.0.0/16",
                "--allow-privileged"));
        apiServer.addAll(List.of(flags));
        commands.put(API_SERVER, apiServer);
        try {
            start(ETCD);
            start(API_SERVER);
            this.http = awaitReady();
        } catch (IOException | GeneralSecurityException | InterruptedException | RuntimeException e) {
            close();
            throw e;
        }
    }

    /** The folder with etcd and Kubernetes' programs, which {@code ./aliquot} makes in the user's cache. */
    public static Path programs() throws IOException, InterruptedException {
        Path programs = programs("cluster_programs");
        if (!Files.isExecutable(programs.resolve(API_SERVER))) {
            throw new IllegalStateException("there is no " + API_SERVER + " in " + programs + ": run ./aliquot build");
        }
        return programs;
    }

    /** The folder that a function of {@code lab/build.sh} prints. */
    public static Path programs(String function) throws IOException, InterruptedException {
        Path root = Path.of("").toAbsolutePath();
        while (!Files.isRegularFile(root.resolve("lab/all.sh"))) {
            root = root.getParent();
            if (root == null) {
                throw new IllegalStateException("no lab/all.sh in the working directory or above it");
            }
        }
        Process process = new ProcessBuilder("bash", "-c", ". lab/all.sh; " + function)
                .directory(root.toFile())
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        String path = new String(process.getInputStream().readAllBytes(), UTF_8);
        if (process.waitFor() != 0 || path.isBlank()) {
            throw new IllegalStateException(
                    "expected the folder of programs from " + function + " of lab/build.sh, found none");
        }
        return Path.of(path.strip());
    }

    private void start(String name) throws IOException {
        processes.put(
                name,
                new ProcessBuilder(commands.get(name))
                        .redirectErrorStream(true)
                        .redirectOutput(ProcessBuilder.Redirect.appendTo(
                                folder.resolve(name + ".log").toFile()))
                        .start());
    }

    /** Sends SIGKILL to the API server, which closes its connections. Writes that it has answered are in etcd. */
    public void kill() {
        kill(API_SERVER);
    }

    private void kill(String name) {
        Process process = processes.get(name);
        process.destroyForcibly();
        process.onExit().join();
    }

    /** Copies etcd's data, for {@link #restore}. */
    public void backUp() throws IOException, InterruptedException {
        kill(ETCD);
        copy(folder.resolve("etcd"), folder.resolve("backup"));
        start(ETCD);
    }

    /** Goes back to the last {@link #backUp}; the API server is stopped meanwhile. */
    public void restore() throws IOException, GeneralSecurityException, InterruptedException {
        kill();
        kill(ETCD);
        copy(folder.resolve("backup"), folder.resolve("etcd"));
        start(ETCD);
        startAgain();
    }

    private static void copy(Path from, Path to) throws IOException, InterruptedException {
        var command =
                List.of("bash", "-c", "rm -rf \"$2\" && cp -a \"$1\" \"$2\"", "-", from.toString(), to.toString());
        if (new ProcessBuilder(command).inheritIO().start().waitFor() != 0) {
            throw new IOException("cannot copy " + from);
        }
    }

    /** Starts a killed API server again, at the same address, and waits until it is ready. */
    public void startAgain() throws IOException, GeneralSecurityException, InterruptedException {
        start(API_SERVER);
        var unused = awaitReady();
    }

    /** Has etcd compact all old revisions, so that watches cannot resume from them. */
    public void compact() throws IOException, InterruptedException {
        String endpoint = commands.get(ETCD).stream()
                .filter(argument -> argument.startsWith("--advertise-client-urls="))
                .findFirst()
                .orElseThrow()
                .substring("--advertise-client-urls=".length());
        HttpClient client =
                HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        // etcd's gRPC gateway: numbers are strings and keys are base64; "AA==" is the lowest key.
        String range = send(client, endpoint + "/v3/kv/range", "{\"key\":\"AA==\",\"limit\":1}");
        Object header =
                new KubernetesSerialization().unmarshal(range, Map.class).get("header");
        String revision = String.valueOf(((Map<?, ?>) header).get("revision"));
        var unused = send(client, endpoint + "/v3/kv/compaction", "{\"revision\":\"" + revision + "\"}");
    }

    private static String send(HttpClient client, String url, String body) throws IOException, InterruptedException {
        var response = client.send(
                HttpRequest.newBuilder(URI.create(url))
                        .POST(BodyPublishers.ofString(body))
                        .build(),
                BodyHandlers.ofString(UTF_8));
        if (response.statusCode() != 200) {
            throw new IllegalStateException("etcd answered " + response.statusCode() + " " + response.body());
        }
        return response.body();
    }

    private HttpClient awaitReady() throws InterruptedException, IOException, GeneralSecurityException {
        long end = System.nanoTime() + START.toNanos();
        Path certificate = certificate();
        while (System.nanoTime() < end && processes.values().stream().allMatch(Process::isAlive)) {
            TimeUnit.MILLISECONDS.sleep(100);
            if (!Files.exists(certificate) || !Files.readString(certificate).contains("END CERTIFICATE")) {
                continue;
            }
            HttpClient client = HttpClient.newBuilder()
                    .version(HttpClient.Version.HTTP_1_1)
                    .sslContext(TlsContext.of(TlsContext.NO_KEY, TlsContext.trusting(certificate)))
                    .build();
            var request = HttpRequest.newBuilder(URI.create(address() + "/readyz"))
                    .header("Authorization", "Bearer " + ADMIN_TOKEN)
                    .timeout(Duration.ofSeconds(5));
            try {
                if (client.send(request.build(), BodyHandlers.discarding()).statusCode() == 200) {
                    return client;
                }
            } catch (IOException e) {
                // it does not listen yet
            }
        }
        var details = new StringBuilder();
        for (String name : commands.keySet()) {
            Process process = processes.get(name);
            details.append(process.isAlive() ? "" : "; " + name + " ended with " + process.exitValue());
        }
        for (String name : commands.keySet()) {
            details.append("\n").append(name).append(":\n").append(Files.readString(folder.resolve(name + ".log")));
        }
        throw new IllegalStateException("the API server is not ready after " + START + " or less" + details);
    }

    /** That of Kubernetes, such as {@code v1.35.4}. */
    public String version() {
        return admin().get("/version").expectSuccess().field("gitVersion");
    }

    public int port() {
        return port;
    }

    private String address() {
        return "https://127.0.0.1:" + port;
    }

    /** A configuration of fabric8's client as the administrator, without retries, as in the programs. */
    public ConfigBuilder client() {
        return new ConfigBuilder(Config.empty())
                .withMasterUrl(address())
                .withCaCertFile(certificate().toString())
                .withOauthToken(ADMIN_TOKEN)
                .withRequestRetryBackoffLimit(0);
    }

    /** A caller with the administrator's rights. */
    public Caller admin() {
        return new Caller(ADMIN_TOKEN, List.of());
    }

    /** A caller that the Node authorizer takes for a node's kubelet. */
    public Caller kubelet(String node) {
        return new Caller(
                ADMIN_TOKEN, List.of("Impersonate-User", "system:node:" + node, "Impersonate-Group", "system:nodes"));
    }

    /** A caller of this name with the administrator's RBAC rights. */
    public Caller mighty(String user) {
        return new Caller(ADMIN_TOKEN, List.of("Impersonate-User", user, "Impersonate-Group", "system:masters"));
    }

    /** A caller with a service account of the release; its token is not bound to a pod. */
    public Caller account(String name) {
        return new Caller(token(name, "{}"), List.of());
    }

    /** A caller with a service account of the release, in a pod: its token names the pod's node. */
    public Caller account(String name, String pod) {
        return new Caller(token(name, """
            {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "%s"}}""".formatted(pod)), List.of());
    }

    private String token(String account, String spec) {
        return admin().post("/api/v1/namespaces/" + NAMESPACE + "/serviceaccounts/" + account + "/token", """
                        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": %s}""".formatted(
                                spec))
                .expectSuccess()
                .field("status", "token");
    }

    /** The API server's certificate and that of its issuer. */
    public Path certificate() {
        return folder.resolve("apiserver.crt");
    }

    /** The administrator's kubeconfig. */
    public String kubeconfig() throws IOException {
        return """
            apiVersion: v1
            kind: Config
            clusters:
            - name: test
              cluster: {server: "%s", certificate-authority-data: "%s"}
            users:
            - name: admin
              user: {token: "%s"}
            contexts:
            - name: test
              context: {cluster: test, user: admin}
            current-context: test
            """.formatted(
                        address(), Base64.getEncoder().encodeToString(Files.readAllBytes(certificate())), ADMIN_TOKEN);
    }

    /** An identity that sends requests to the API server. */
    public final class Caller {
        private final String token;
        private final List<String> headers;

        private Caller(String token, List<String> headers) {
            this.token = token;
            this.headers = headers;
        }

        public Response get(String path) {
            return send("GET", path, "application/json", "");
        }

        /** Creates an object; the body is YAML or JSON. */
        public Response post(String path, String body) {
            return send("POST", path, "application/yaml", body);
        }

        public Response put(String path, String body) {
            return send("PUT", path, "application/json", body);
        }

        /** Sends a JSON merge patch. */
        public Response patch(String path, String body) {
            return send("PATCH", path, "application/merge-patch+json", body);
        }

        /** Sends a strategic merge patch, which merges lists by their keys. */
        public Response strategicPatch(String path, String body) {
            return send("PATCH", path, "application/strategic-merge-patch+json", body);
        }

        public Response delete(String path) {
            return send("DELETE", path, "application/json", "");
        }

        private Response send(String method, String path, String type, String body) {
            var request = HttpRequest.newBuilder(URI.create(address() + path))
                    .method(method, body.isEmpty() ? BodyPublishers.noBody() : BodyPublishers.ofString(body))
                    .header("Authorization", "Bearer " + token)
                    .header("Content-Type", type)
                    .header("Accept", "application/json")
                    .timeout(Duration.ofSeconds(30));
            if (!headers.isEmpty()) {
                request.headers(headers.toArray(String[]::new));
            }
            try {
                var response = http.send(request.build(), BodyHandlers.ofString(UTF_8));
                return new Response(
                        response.statusCode(),
                        response.body(),
                        response.headers().allValues("Warning"));
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new IllegalStateException("interrupted while waiting for " + method + " " + path, e);
            }
        }
    }

    @Override
    public void close() {
        processes.values().forEach(Process::destroyForcibly);
        processes.values().forEach(process -> process.onExit().join());
    }

    /**
     * A free port below the range of outgoing connections, which starts at 32768: an outgoing connection could take a
     * port of that range before the server does, or while the server is killed.
     */
    public static int freePort() throws IOException {
        while (true) {
            int port = ThreadLocalRandom.current().nextInt(20_000, 30_000);
            try {
                new ServerSocket(port, 1, InetAddress.getLoopbackAddress()).close();
                return port;
            } catch (BindException e) {
                // the port is in use
            }
        }
    }

    private static String privateKey() throws GeneralSecurityException {
        var generator = KeyPairGenerator.getInstance("RSA");
        generator.initialize(2048);
        byte[] key = generator.generateKeyPair().getPrivate().getEncoded();
        return "-----BEGIN PRIVATE KEY-----\n"
                + Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(key)
                + "\n-----END PRIVATE KEY-----\n";
    }
}
