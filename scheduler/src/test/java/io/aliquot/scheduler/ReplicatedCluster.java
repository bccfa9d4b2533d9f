package io.aliquot.scheduler;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.scheduler.QuotaHistory.Amount;
import io.aliquot.scheduler.extensionapi.Authority;
import io.aliquot.testing.ApiServer;
import io.aliquot.testing.Await;
import io.aliquot.testing.Tls;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * A real API server with the chart's roles, webhooks and policies, nodes without a kubelet, and two replicas of the
 * scheduler.
 */
final class ReplicatedCluster implements AutoCloseable {
    static final String QUOTA = "gpus";
    static final int CARD_MIB = 24_576;
    /** Enough for all pods of a test at once, and for what deleted pods and resizes hold, since there is no agent. */
    private static final int NODES = 50;

    private static final int GPUS = 8;

    final KubernetesClient client;
    final List<ReplicaProcess> replicas = new ArrayList<>();
    /** Replicas that cannot answer. */
    final Set<ReplicaProcess> paused = new HashSet<>();

    private final Path folder;
    private final ApiServer server;
    private final HttpClient frontProxy;

    /** Starts the API server alone. */
    ReplicatedCluster(Path folder) throws Exception {
        this.folder = folder;
        var authority = new Authority("front-proxy-ca");
        server = new ApiServer(
                Files.createDirectory(folder.resolve("server")),
                "--requestheader-client-ca-file="
                        + Authority.write(folder, "front-proxy-ca.crt", authority.certificate),
                "--requestheader-allowed-names=front-proxy-client",
                "--requestheader-username-headers=X-Remote-User",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-");
        frontProxy = frontProxy(authority.client("front-proxy-client"));
        client = new KubernetesClientBuilder()
                .withConfig(server.client().withHttp2Disable(true).build())
                .build();
    }

    /** Creates the nodes, installs the chart and starts the replicas. */
    void start() throws Exception {
        server.admin()
                .post("/api/v1/namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: aliquot}}")
                .expectSuccess();
        for (int node = 0; node < NODES; node++) {
            createNode("node-" + node);
        }
        String configuration = installChart();
        Path kubeconfig = Files.writeString(
                folder.resolve("kubeconfig"),
                server.kubeconfig()
                        .replaceFirst(
                                "token: \"[^\"]*\"",
                                "token: \""
                                        + server.admin()
                                                .post(
                                                        "/api/v1/namespaces/aliquot/serviceaccounts/aliquot-scheduler/token",
                                                        "{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, spec: {}}")
                                                .expectSuccess()
                                                .field("status", "token")
                                        + "\""));
        for (String name : List.of("aliquot-scheduler-a", "aliquot-scheduler-b")) {
            replicas.add(new ReplicaProcess(folder, name, kubeconfig, configuration));
        }
        replicas.forEach(ReplicaProcess::start);
        trustAuthority();
    }

    /** As the chart's Job does: the extender serves its API only when the API server trusts its certificate. */
    private void trustAuthority() throws Exception {
        var secret = client.secrets().inNamespace("aliquot").withName("aliquot-webhook-ca");
        Await.await(() -> "an authority", Duration.ofMinutes(2), () -> secret.get() != null);
        var unused = client.admissionRegistration()
                .v1()
                .mutatingWebhookConfigurations()
                .withName("aliquot")
                .edit(configuration -> {
                    configuration
                            .getWebhooks()
                            .forEach(webhook -> webhook.getClientConfig()
                                    .setCaBundle(secret.get().getData().get("ca.crt")));
                    return configuration;
                });
    }

    @Override
    public void close() {
        replicas.forEach(ReplicaProcess::close);
        client.close();
        server.close();
    }

    private void createNode(String name) {
        List<Gpu> gpus = IntStream.range(0, GPUS)
                .mapToObj(index -> new Gpu(
                        "GPU-" + UUID.nameUUIDFromBytes((name + index).getBytes(UTF_8)),
                        index,
                        "NVIDIA A10",
                        CARD_MIB,
                        0,
                        -1,
                        Gpu.HEALTHY,
                        Gpu.SHIM,
                        Map.of()))
                .toList();
        var inventory = new Inventory(new VisibleDevices("{uuid}"), Scaling.ONE, Scaling.ONE, 10, gpus);
        client.resource(new NodeBuilder()
                        .withNewMetadata()
                        .withName(name)
                        .addToLabels(Labels.GPU, Labels.GPU_ON)
                        .addToAnnotations(Annotations.GPUS, inventory.print())
                        .endMetadata()
                        .build())
                .create();
        // The API server creates nodes with a taint, which a controller would remove.
        client.nodes().withName(name).patch(PatchContext.of(PatchType.JSON_MERGE), "{\"spec\": {\"taints\": null}}");
        String resources = "{\"cpu\": \"64\", \"memory\": \"512Gi\", \"pods\": \"500\", \"aliquot.io/vgpu\": \"%d\","
                        .formatted(GPUS * 10)
                + "\"nvidia.com/gpumem\": \"%d\", \"nvidia.com/gpumem-percentage\": \"%d\", \"nvidia.com/gpucores\": \"%d\"}"
                        .formatted(GPUS * CARD_MIB, GPUS * 100, GPUS * 100);
        client.nodes()
                .withName(name)
                .subresource("status")
                .patch(
                        PatchContext.of(PatchType.JSON_MERGE),
                        "{\"status\": {\"capacity\": " + resources + ", \"allocatable\": " + resources + "}}");
    }

    /**
     * Installs the roles, webhooks and policies of the chart, without the policy that requires what the webhook writes for
     * the kubelet. Returns kube-scheduler's configuration.
     */
    private String installChart() throws Exception {
        String rendered = run(
                "helm",
                "template",
                "aliquot",
                Path.of("..", "charts/aliquot").toAbsolutePath().normalize().toString(),
                "--namespace=aliquot",
                "--kube-version=1.35.4",
                "--set=kubeScheduler.podMaxBackoffSeconds=5");
        List<String> documents = List.of(rendered.split("(?m)^---$", -1));
        String objects = documents.stream()
                .filter(
                        document -> document.matches(
                                "(?s).*\nkind: (ServiceAccount|ClusterRole|Role|ClusterRoleBinding"
                                        + "|RoleBinding|MutatingWebhookConfiguration|ValidatingAdmissionPolicy|ValidatingAdmissionPolicyBinding)\n.*"))
                .filter(document -> !document.contains("\n  name: aliquot-gpu-pods\n"))
                .collect(Collectors.joining("---\n"));
        Files.writeString(folder.resolve("admin"), server.kubeconfig());
        var unused = run(
                "kubectl",
                "--kubeconfig=" + folder.resolve("admin"),
                "apply",
                "-f",
                Files.writeString(folder.resolve("objects.yaml"), objects).toString());
        return documents.stream()
                .filter(document -> document.contains("kind: KubeSchedulerConfiguration"))
                .findFirst()
                .orElseThrow()
                .replaceFirst("(?s)^.*?\n  config.yaml: \\|\n", "")
                .replaceAll("(?m)^    ", "");
    }

    private String run(String... command) throws IOException, InterruptedException {
        command[0] = ApiServer.programs().resolve(command[0]).toString();
        Path output = folder.resolve("output");
        int status = new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(output.toFile())
                .start()
                .waitFor();
        assertThat(status).as(Files.readString(output)).isZero();
        return Files.readString(output);
    }

    /** Sends requests to a replica as the API server forwards them. */
    private static HttpClient frontProxy(Authority.Identity identity) throws Exception {
        return HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .sslContext(Tls.anyServer(identity.key(), identity.certificate()))
                .connectTimeout(Duration.ofSeconds(2))
                .build();
    }

    /** Sends the leader a resize of container main, as the API server forwards one. */
    HttpResponse<String> resize(Pod pod, int memoryMiB) throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(URI.create("https://localhost:"
                        + leader().orElse(replicas.get(0)).webhooksPort()
                        + "/apis/gpu.aliquot.io/v1alpha1/namespaces/"
                        + pod.getMetadata().getNamespace() + "/gpushares/"
                        + pod.getMetadata().getName()))
                .timeout(Duration.ofSeconds(5))
                .header("X-Remote-User", "admin")
                .header("X-Remote-Group", "system:masters")
                .header("Content-Type", "application/merge-patch+json")
                .method(
                        "PATCH",
                        BodyPublishers.ofString(
                                "{\"spec\": {\"containers\": [{\"name\": \"main\", \"memoryMiB\": %d}]}}"
                                        .formatted(memoryMiB)))
                .build();
        return frontProxy.send(request, BodyHandlers.ofString(UTF_8));
    }

    /** The replica whose kube-scheduler holds the Lease. */
    Optional<ReplicaProcess> leader() {
        return replicas.stream()
                .filter(replica -> holder().startsWith(replica.name() + "_"))
                .findFirst();
    }

    String holder() {
        var lease = client.leases()
                .inNamespace("aliquot")
                .withName("aliquot-scheduler")
                .get();
        return lease == null ? "" : String.valueOf(lease.getSpec().getHolderIdentity());
    }

    /** The metrics of each replica that answers. */
    List<Map<String, Double>> answers() throws InterruptedException {
        var answers = new ArrayList<Map<String, Double>>();
        for (ReplicaProcess replica : replicas) {
            if (!paused.contains(replica)) {
                Map<String, Double> metrics = replica.metrics();
                if (!metrics.isEmpty()) {
                    answers.add(metrics);
                }
            }
        }
        return answers;
    }

    /** What a replica's metrics say of a namespace's quota; {@code absent} for what it does not limit. */
    static Amount quota(Map<String, Double> metrics, String namespace, String suffix, long absent) {
        String labels = suffix + "{namespace=\"" + namespace + "\",resourcequota=\"" + QUOTA + "\"}";
        Double memory = metrics.get("aliquot_quota_memory_bytes" + labels);
        Double cores = metrics.get("aliquot_quota_cores_ratio" + labels);
        Double vgpus = metrics.get("aliquot_quota_vgpus" + labels);
        return new Amount(
                memory == null ? absent : Math.round(memory / (1 << 20)),
                cores == null ? absent : Math.round(cores * 100),
                vgpus == null ? absent : Math.round(vgpus));
    }

    void awaitLeader() throws Exception {
        Await.await(() -> "both replicas answer and one places pods", Duration.ofMinutes(2), () -> {
            replicas.forEach(ReplicaProcess::start);
            List<Map<String, Double>> answers = answers();
            return answers.size() == replicas.size()
                    && answers.stream().anyMatch(metrics -> metrics.getOrDefault("aliquot_leader", 0.0) == 1);
        });
    }
}
