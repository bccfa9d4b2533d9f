package io.aliquot.testing;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.IOException;
import java.io.InputStream;
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
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * A real API server and its etcd, alone: no controllers, no nodes but those that a test creates. Up in some 4 s. Service
 * account tokens, RBAC, the Node authoriser and NodeRestriction are as in a cluster. Either may be killed and started
 * again.
 */
public final class ApiServer implements AutoCloseable {
    /** Whose service accounts {@link #account} gives; as the chart's tests name the release's namespace. */
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

    /** What the API server answered. */
    public record Answer(int code, String body) {
        /** A field of a JSON answer, by its path. */
        @SuppressWarnings("unchecked")
        public String field(String... path) {
            Object value = new KubernetesSerialization().unmarshal(body, Map.class);
            for (String part : path) {
                value = value instanceof Map ? ((Map<String, Object>) value).get(part) : null;
            }
            return String.valueOf(value);
        }

        public Answer expectSuccess() {
            if (code / 100 != 2) {
                throw new AssertionError("expected success, found " + code + "\n" + body);
            }
            return this;
        }
    }

    /** Starts both, with their files in {@code folder}. */
    public ApiServer(Path folder) throws IOException, GeneralSecurityException, InterruptedException {
        this.folder = folder;
        String kube = program().toString();
        int etcd = freePort();
        this.port = freePort();
        Path key = Files.writeString(folder.resolve("service-accounts.key"), privateKey());
        Path tokens = Files.writeString(folder.resolve("tokens"), ADMIN_TOKEN + ",admin,admin,system:masters\n");
        commands.put(
                ETCD,
                List.of(
                        kube,
                        "etcd",
                        "--data-dir=" + folder.resolve("etcd"),
                        "--listen-client-urls=http://127.0.0.1:" + etcd,
                        "--advertise-client-urls=http://127.0.0.1:" + etcd,
                        "--listen-peer-urls=http://127.0.0.1:0",
                        "--unsafe-no-fsync",
                        "--log-level=error"));
        commands.put(
                API_SERVER,
                List.of(
                        kube,
                        "kube-apiserver",
                        "--etcd-servers=http://127.0.0.1:" + etcd,
                        "--bind-address=127.0.0.1",
                        "--advertise-address=127.0.0.1",
                        "--secure-port=" + port,
                        "--cert-dir=" + folder,
                        "--token-auth-file=" + tokens,
                        "--authorization-mode=Node,RBAC",
                        "--enable-admission-plugins=NodeRestriction",
                        // it would want a controller to make accounts
                        "--disable-admission-plugins=ServiceAccount",
                        "--service-account-issuer=https://kubernetes.default.svc",
                        "--service-account-signing-key-file=" + key,
                        "--service-account-key-file=" + key,
                        "--service-cluster-ip-range=10.96.0.0/16",
                        "--allow-privileged"));
        try {
            start(ETCD);
            start(API_SERVER);
            this.http = awaitReady();
        } catch (IOException | GeneralSecurityException | InterruptedException | RuntimeException e) {
            close();
            throw e;
        }
    }

    /**
     * All of Kubernetes in one program, told what to be by its first argument, as {@code ./aliquot} builds it and keeps
     * it in the user's cache; or another one, named by {@code ALIQUOT_KUBE}.
     */
    private static Path program() throws IOException, InterruptedException {
        String given = System.getenv("ALIQUOT_KUBE");
        Path program = given == null ? built() : Path.of(given);
        if (!Files.isExecutable(program)) {
            throw new IllegalStateException("there is no " + program
                    + ": have it built (./aliquot build), or name a program `kube` in ALIQUOT_KUBE");
        }
        return program.toAbsolutePath();
    }

    private static Path built() throws IOException, InterruptedException {
        Path root = Path.of("").toAbsolutePath();
        while (!Files.isRegularFile(root.resolve("lab/all.sh"))) {
            root = root.getParent();
            if (root == null) {
                throw new IllegalStateException("there is no lab/all.sh in the working folder or above it");
            }
        }
        Process process = new ProcessBuilder("bash", "-c", ". lab/all.sh; kube_program")
                .directory(root.toFile())
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        String path = new String(process.getInputStream().readAllBytes(), UTF_8);
        if (process.waitFor() != 0 || path.isBlank()) {
            throw new IllegalStateException("lab/all.sh cannot tell where the program `kube` lies");
        }
        return Path.of(path.strip());
    }

    private void start(String name) throws IOException {
        processes.put(
                name,
                new ProcessBuilder(command(commands.get(name)))
                        .redirectErrorStream(true)
                        .redirectOutput(ProcessBuilder.Redirect.appendTo(
                                folder.resolve(name + ".log").toFile()))
                        .start());
    }

    /** Called kube, the program takes its first argument for what it shall be. */
    private static List<String> command(List<String> arguments) {
        var command = new ArrayList<>(List.of("bash", "-c", "exec -a kube \"$0\" \"$@\""));
        command.addAll(arguments);
        return command;
    }

    /** SIGKILL to the API server, with all its connections. What it has answered for is in etcd. */
    public void kill() {
        Process process = processes.get(API_SERVER);
        process.destroyForcibly();
        process.onExit().join();
    }

    /** Starts a killed API server again, at the same address, and waits until it is ready. */
    public void startAgain() throws IOException, GeneralSecurityException, InterruptedException {
        start(API_SERVER);
        var unused = awaitReady();
    }

    /** Has etcd forget all old revisions, so that watches can't go on from them. */
    public void compact() throws IOException, InterruptedException {
        String endpoint = commands.get(ETCD).stream()
                .filter(argument -> argument.startsWith("--advertise-client-urls="))
                .findFirst()
                .orElseThrow()
                .substring("--advertise-client-urls=".length());
        HttpClient client =
                HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        // etcd's gRPC gateway: numbers are strings, keys base64 ("AA==" is the first of all).
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
                    .sslContext(trusting(certificate))
                    .build();
            var request = HttpRequest.newBuilder(URI.create(address() + "/readyz"))
                    .header("Authorization", "Bearer " + ADMIN_TOKEN)
                    .timeout(Duration.ofSeconds(5));
            try {
                if (client.send(request.build(), BodyHandlers.discarding()).statusCode() == 200) {
                    return client;
                }
            } catch (IOException e) {
                // it doesn't listen yet
            }
        }
        var said = new StringBuilder();
        for (String name : commands.keySet()) {
            Process process = processes.get(name);
            said.append(process.isAlive() ? "" : "; " + name + " ended with " + process.exitValue());
        }
        for (String name : commands.keySet()) {
            said.append("\n").append(name).append(":\n").append(Files.readString(folder.resolve(name + ".log")));
        }
        throw new IllegalStateException("the API server is not ready after " + START + " or less" + said);
    }

    public int port() {
        return port;
    }

    private String address() {
        return "https://127.0.0.1:" + port;
    }

    /** For fabric8's client, as the administrator. It tries once, as the programs' own do. */
    public ConfigBuilder client() {
        return new ConfigBuilder(Config.empty())
                .withMasterUrl(address())
                .withCaCertFile(certificate().toString())
                .withOauthToken(ADMIN_TOKEN)
                .withRequestRetryBackoffLimit(0);
    }

    /** The administrator. */
    public Caller admin() {
        return new Caller(ADMIN_TOKEN, List.of());
    }

    /** A kubelet, as the Node authoriser knows it. */
    public Caller kubelet(String node) {
        return new Caller(
                ADMIN_TOKEN, List.of("Impersonate-User", "system:node:" + node, "Impersonate-Group", "system:nodes"));
    }

    /** A service account of the release, by a token that isn't bound to a pod. */
    public Caller account(String name) {
        return new Caller(token(name, "{}"), List.of());
    }

    /** A service account of the release, in a pod: its token names the pod's node. */
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

    /** Its own, with that of its issuer. */
    public Path certificate() {
        return folder.resolve("apiserver.crt");
    }

    /** For Helm. */
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

    /** Somebody who may be let through or not. */
    public final class Caller {
        private final String token;
        private final List<String> headers;

        private Caller(String token, List<String> headers) {
            this.token = token;
            this.headers = headers;
        }

        public Answer get(String path) {
            return send("GET", path, "application/json", "");
        }

        /** Creates; the body is YAML or JSON. */
        public Answer post(String path, String body) {
            return send("POST", path, "application/yaml", body);
        }

        public Answer put(String path, String body) {
            return send("PUT", path, "application/json", body);
        }

        /** A JSON merge patch. */
        public Answer patch(String path, String body) {
            return send("PATCH", path, "application/merge-patch+json", body);
        }

        public Answer patchJson(String path, String body) {
            return send("PATCH", path, "application/json-patch+json", body);
        }

        public Answer delete(String path) {
            return send("DELETE", path, "application/json", "");
        }

        private Answer send(String method, String path, String type, String body) {
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
                return new Answer(response.statusCode(), response.body());
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
     * None of those that the kernel gives to outgoing connections, 32768 and above: one of them could take it before its
     * server does, or while that is killed.
     */
    private static int freePort() throws IOException {
        while (true) {
            int port = ThreadLocalRandom.current().nextInt(20_000, 30_000);
            try {
                new ServerSocket(port, 1, InetAddress.getLoopbackAddress()).close();
                return port;
            } catch (BindException e) {
                // somebody has it
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

    private static SSLContext trusting(Path file) throws GeneralSecurityException, IOException {
        var store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        Collection<? extends Certificate> certificates;
        try (InputStream in = Files.newInputStream(file)) {
            certificates = CertificateFactory.getInstance("X.509").generateCertificates(in);
        }
        int n = 0;
        for (Certificate certificate : certificates) {
            store.setCertificateEntry("certificate" + n++, certificate);
        }
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        var context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }
}
