package io.aliquot.scheduler.doctor;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.aliquot.scheduler.extensionapi.Authority;
import io.aliquot.testing.ApiServer;
import io.aliquot.testing.Tls;
import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.Namespace;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodStatus;
import io.fabric8.kubernetes.api.model.Secret;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import io.fabric8.kubernetes.api.model.rbac.ClusterRole;
import io.fabric8.kubernetes.api.model.rbac.ClusterRoleBinding;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The archive of a real API server, with a kubelet that has logs and a pod that has metrics. */
class BundleIT {
    private static final List<String> LOG_QUERIES = new CopyOnWriteArrayList<>();

    @TempDir
    @SuppressWarnings("NullAway.Init")
    static Path files;

    @SuppressWarnings("NullAway.Init")
    private static ApiServer server;

    @SuppressWarnings("NullAway.Init")
    private static HttpsServer kubelet;

    @SuppressWarnings("NullAway.Init")
    private static HttpServer metrics;

    @TempDir
    @SuppressWarnings("NullAway.Init")
    Path folder;

    @BeforeAll
    static void start() throws Exception {
        server = new ApiServer(files);
        kubelet = kubelet();
        metrics = HttpServer.create(loopback(), 0);
        metrics.createContext("/metrics", exchange -> answer(exchange, "aliquot_bound_pods 1\n"));
        metrics.start();
        try (KubernetesClient client = client(server.client().build())) {
            plant(client);
        }
    }

    @AfterAll
    static void stop() {
        metrics.stop(0);
        kubelet.stop(0);
        server.close();
    }

    private static HttpsServer kubelet() throws Exception {
        var authority = new Authority("kubelet");
        Authority.Identity identity = authority.client("node1");
        HttpsServer created = HttpsServer.create(loopback(), 0);
        created.setHttpsConfigurator(new HttpsConfigurator(
                Tls.trusting(List.of(authority.certificate), identity.key(), identity.certificate())));
        created.createContext("/containerLogs/aliquot/aliquot-scheduler-a/extender", exchange -> {
            String query = exchange.getRequestURI().getQuery();
            LOG_QUERIES.add(query);
            answer(
                    exchange,
                    query.contains("previous=true")
                            ? "it ended\n"
                            : "cut off" + "\n".repeat(Bundle.MAX_LOG_BYTES) + "it runs, token=PLANTED\n");
        });
        created.start();
        return created;
    }

    private static InetSocketAddress loopback() {
        return new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
    }

    private static void answer(HttpExchange exchange, String text) throws IOException {
        byte[] bytes = text.getBytes(UTF_8);
        exchange.sendResponseHeaders(200, bytes.length);
        try (var out = exchange.getResponseBody()) {
            out.write(bytes);
        }
    }

    private static void plant(KubernetesClient client) {
        create(client, Namespace.class, "{metadata: {name: aliquot}}");
        create(client, Namespace.class, "{metadata: {name: team}}");
        for (String namespace : List.of("aliquot", "team")) {
            create(
                    client,
                    Secret.class,
                    "{metadata: {name: s, namespace: %s}, stringData: {k: PLANTED}}".formatted(namespace));
        }
        create(client, Node.class, """
                metadata: {name: node1, labels: {gpu: "on"}, annotations: {aliquot.io/slots: "10", example.com/join: PLANTED}}
                status:
                  addresses: [{type: InternalIP, address: 127.0.0.1}]
                  daemonEndpoints: {kubeletEndpoint: {Port: %d}}
                """.formatted(kubelet.getAddress().getPort()));
        create(client, Deployment.class, """
                metadata: {name: aliquot-scheduler, namespace: aliquot, labels: {app.kubernetes.io/name: aliquot}, annotations: {x: PLANTED}}
                spec:
                  selector: {matchLabels: {a: b}}
                  template:
                    metadata: {labels: {a: b}}
                    spec: {containers: [{name: extender, image: i, env: [{name: HTTPS_PROXY, value: PLANTED}, {name: ALIQUOT_OVERUSE, value: report}]}]}
                """);
        create(
                client,
                ConfigMap.class,
                "{metadata: {name: aliquot-logging, namespace: aliquot}, data: {scheduler: info}}");
        Pod scheduler =
                create(client, Pod.class, """
                metadata: {name: aliquot-scheduler-a, namespace: aliquot, labels: {app.kubernetes.io/name: aliquot, app.kubernetes.io/component: scheduler}}
                spec: {nodeName: node1, containers: [{name: extender, image: i, ports: [{name: metrics, containerPort: %d}], env: [{name: X, value: PLANTED}]}]}
                """.formatted(metrics.getAddress().getPort()));
        status(client, scheduler, """
                podIP: 127.0.0.1
                containerStatuses: [{name: extender, image: i, imageID: "i@sha256:1", restartCount: 1}, {name: injected, image: j, imageID: j}]
                """);
        Pod share = create(client, Pod.class, """
                metadata: {name: train, namespace: team, annotations: {aliquot.io/vgpu.main: "GPU-1", example.com/x: PLANTED}}
                spec: {schedulerName: aliquot-scheduler, nodeName: node1, containers: [{name: main, image: i, command: [PLANTED], env: [{name: X, value: PLANTED}]}]}
                """);
        status(client, share, """
                containerStatuses: [{name: main, image: i, imageID: i, state: {terminated: {exitCode: 3, reason: Error, message: PLANTED}}}]
                """);
        create(
                client,
                Pod.class,
                "{metadata: {name: stranger, namespace: team}, spec: {containers: [{name: main, image: i, command: [PLANTED]}]}}");
        event(client, share, "kubelet", "Unhealthy", "Readiness probe failed: PLANTED");
        event(client, share, "aliquot-scheduler", "FailedScheduling", "0/1 nodes are available");
        event(client, scheduler, "kubelet", "BackOff", "Back-off restarting failed container");
    }

    private static <T extends HasMetadata> T create(KubernetesClient client, Class<T> type, String yaml) {
        return client.resource(Installation.read(type, yaml)).create();
    }

    private static void status(KubernetesClient client, Pod pod, String yaml) {
        pod.setStatus(Installation.read(PodStatus.class, yaml));
        client.resource(pod).updateStatus();
    }

    private static void event(KubernetesClient client, Pod pod, String source, String reason, String message) {
        create(client, Event.class, """
                metadata: {generateName: e, namespace: %1$s}
                involvedObject: {kind: Pod, namespace: %1$s, name: %2$s, uid: %3$s}
                source: {component: %4$s}
                type: Warning
                reason: %5$s
                message: "%6$s"
                lastTimestamp: "2026-11-29T12:00:00Z"
                """.formatted(
                        pod.getMetadata().getNamespace(),
                        pod.getMetadata().getName(),
                        pod.getMetadata().getUid(),
                        source,
                        reason,
                        message));
    }

    private static KubernetesClient client(Config config) {
        return new KubernetesClientBuilder().withConfig(config).build();
    }

    @Test
    void itHasWhatExplainsAnInstallationAndNothingThatWasPlanted() throws Exception {
        Map<String, String> entries = bundle(server.client().build());

        assertThat(entries).allSatisfy((name, content) -> assertThat(content).doesNotContain("PLANTED"));
        assertThat(entries.keySet())
                .contains(
                        "findings.txt",
                        "findings.json",
                        "versions.json",
                        "nodes.jsonl",
                        "pods.jsonl",
                        "shares.jsonl",
                        "events.jsonl",
                        "config/daemonsets.json",
                        "config/validatingadmissionpolicies.json",
                        "config/runtimeclasses.json");
        assertThat(entries.get("findings.txt")).isEqualTo("1 finding\n");
        assertThat(entries.get("versions.json")).contains("gitVersion");
        assertThat(entries.get("config/deployments.json")).contains("HTTPS_PROXY", "\"report\"");
        assertThat(entries.get("config/configmap-aliquot-logging.json")).contains("\"info\"");
        assertThat(entries.get("nodes.jsonl")).contains("aliquot.io/slots", "\"node1\"");
        assertThat(entries.get("pods.jsonl")).contains("aliquot-scheduler-a", "i@sha256:1");
        assertThat(entries.get("shares.jsonl")).hasLineCount(1);
        assertThat(entries.get("shares.jsonl")).contains("\"train\"", "GPU-1", "\"exitCode\":3");
        assertThat(entries.get("events.jsonl")).hasLineCount(3);
        assertThat(entries.get("events.jsonl"))
                .contains("Unhealthy", "0/1 nodes are available", "Back-off restarting failed container");
        assertThat(entries.get("logs/aliquot-scheduler-a/extender.log"))
                .doesNotContain("cut off")
                .hasSizeGreaterThan(Bundle.MAX_LOG_BYTES - 1)
                .endsWith("\nit runs, token=(redacted)\n");
        assertThat(entries.get("logs/aliquot-scheduler-a/extender.previous.log"))
                .isEqualTo("it ended\n");
        assertThat(LOG_QUERIES).allMatch(query -> query.contains("tailLines=5000") && query.contains("limitBytes="));
        assertThat(entries.get("errors.txt"))
                .as("each missing part has its reason, and does not end the others")
                .contains(
                        "config/configmap-aliquot-kube-scheduler.json: configmaps \"aliquot-kube-scheduler\" not found",
                        "config/apiservice.json: ",
                        "logs/aliquot-scheduler-a/injected.log: ");
    }

    @Test
    void aCallerWithFewRightsGetsTheMetricsDirectlyAndIsToldWhatIsMissing() throws Exception {
        try (KubernetesClient client = client(server.client().build())) {
            create(
                    client,
                    ClusterRole.class,
                    "{metadata: {name: few}, rules: [{apiGroups: [''], resources: [pods], verbs: [list]}]}");
            create(client, ClusterRoleBinding.class, """
                    metadata: {name: few}
                    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: few}
                    subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: helper}]
                    """);
        }

        Map<String, String> entries = bundle(server.client()
                .withImpersonateUsername("helper")
                .withImpersonateGroups("system:authenticated")
                .build());

        assertThat(entries.get("metrics/aliquot-scheduler-a.txt")).isEqualTo("aliquot_bound_pods 1\n");
        assertThat(entries.keySet()).contains("pods.jsonl", "shares.jsonl").doesNotContain("nodes.jsonl");
        assertThat(entries.get("errors.txt"))
                .contains(
                        "nodes.jsonl: nodes is forbidden: User \"helper\" cannot list resource",
                        "logs/aliquot-scheduler-a/extender.log: pods \"aliquot-scheduler-a\" is forbidden");
    }

    private Map<String, String> bundle(Config config) throws Exception {
        Path file = folder.resolve("bundle.tar.gz");
        var progress = new ByteArrayOutputStream();
        try (var bundle = new Bundle(
                file, new ApiServerClient(config), Instant.EPOCH, () -> 0, new PrintStream(progress, true, UTF_8))) {
            bundle.addFindings(
                    "1 finding", Doctor.json(List.of(new Finding("a", "b", "c", "d")), new Installation().state()));
            bundle.addCluster();
            bundle.complete();
        }
        assertThat(PosixFilePermissions.toString(Files.getPosixFilePermissions(file)))
                .isEqualTo("rw-------");
        assertThat(progress.toString(UTF_8)).contains("Reading the logs of aliquot-scheduler-a", file + " has ");
        Path extracted = folder.resolve("extracted");
        TarGzTest.extract(file, extracted);
        var entries = new TreeMap<String, String>();
        Path root = extracted.resolve("aliquot-bundle");
        try (Stream<Path> all = Files.walk(root)) {
            for (Path one : all.filter(Files::isRegularFile).toList()) {
                entries.put(root.relativize(one).toString(), Files.readString(one));
            }
        }
        return entries;
    }
}
