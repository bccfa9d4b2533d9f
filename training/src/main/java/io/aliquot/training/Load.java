package io.aliquot.training;

import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.security.GeneralSecurityException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Consumer;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/** What kube-scheduler, the API server, kubelets, Prometheus and users of kubectl do to the scheduler. */
final class Load {
    /** Pods that exist at once. */
    private static final int WAVE = 1000;
    /** Bindings on their way at once, each on a connection of its own, as kube-scheduler has them. */
    private static final int BINDS = 24;

    private static final String OBJECTS = "application/json";
    private static final String TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io";

    private static final Duration LIMIT = Duration.ofMinutes(5);

    private final ClusterObjects objects;
    private final ApiServer apiServer;
    private final Ports ports;
    private final List<String> nodes;
    private final SchedulerClient client;

    /** Where the scheduler listens. */
    record Ports(int extender, int webhooks, int health) {}

    Load(ClusterObjects objects, ApiServer apiServer, Ports ports) throws GeneralSecurityException {
        this.objects = objects;
        this.apiServer = apiServer;
        this.ports = ports;
        this.client = new SchedulerClient(BINDS + 1, apiServer.frontProxy());
        this.nodes = ClusterObjects.nodeNames(Training.NODES);
    }

    boolean ready() {
        return get("/readyz");
    }

    private boolean get(String path) {
        try (InputStream in =
                URI.create("http://127.0.0.1:" + ports.health() + path).toURL().openStream()) {
            return in.readAllBytes().length > 0;
        } catch (IOException e) {
            return false; // not listening yet, or not 200
        }
    }

    /** Whether the scheduler answers a Filter: it does not before its kube-scheduler leads. */
    boolean leads() {
        return post("/filter", filterArgs(objects.newPod(0), nodes))
                .path("Error")
                .asString()
                .isEmpty();
    }

    /** Schedules pods until so many were bound or refused. */
    void run(int pods, Consumer<String> report) throws InterruptedException {
        try (ExecutorService binds = Executors.newFixedThreadPool(BINDS)) {
            for (int first = 0; first < pods; first += WAVE) {
                int expected = apiServer.bound();
                for (int i = first; i < first + WAVE; i++) {
                    ObjectNode pod = objects.newPod(i);
                    client.post(
                            "https://127.0.0.1:" + ports.webhooks() + "/admission/gpu?timeout=10s",
                            objects.admissionReview(pod));
                    objects.createPod(pod);
                }
                for (int i = first; i < first + WAVE; i++) {
                    expected += schedule(i, binds) ? 1 : 0;
                    if (i % 10 == 0) {
                        objects.updateNode(i / 10 % Training.NODES);
                    }
                }
                int all = expected;
                Training.await("all pods are bound", LIMIT, () -> apiServer.bound() >= all);
                readShares(first);
                for (int i = first; i < first + WAVE; i++) {
                    objects.endPod(i);
                }
                objects.renewLease();
                get("/metrics");
                get("/livez");
                report.accept(first + WAVE + " pods");
            }
        }
    }

    /** What kubectl and the web page ask the aggregated API for. */
    private void readShares(int i) {
        String group = "https://127.0.0.1:" + ports.webhooks() + "/apis/gpu.aliquot.io/v1alpha1/";
        for (String resource : List.of("gpunodes", "gpus", "gpushares")) {
            client.get(group + resource + "?limit=500", OBJECTS);
            client.get(group + resource + "?limit=500", TABLE);
            client.get(group + resource + "?watch=true&timeoutSeconds=1", OBJECTS);
        }
        String share = group + "namespaces/training/gpushares/" + ClusterObjects.podName(i);
        client.get(share, OBJECTS);
        client.get(share + "/explain", OBJECTS);
    }

    /** One pod as kube-scheduler schedules it; false if it fits on no node. */
    private boolean schedule(int i, ExecutorService binds) {
        ObjectNode pod = objects.pod(i);
        JsonNode fitting = post("/filter", filterArgs(pod, nodes)).path("NodeNames");
        if (fitting.isEmpty()) {
            objects.markUnschedulable(i);
            ObjectNode arguments = ApiServer.JSON.createObjectNode();
            arguments.set("Pod", pod);
            arguments.putObject("NodeNameToMetaVictims");
            post("/preempt", arguments);
            return false;
        }
        List<String> names = fitting.values().stream().map(JsonNode::asString).toList();
        String best = "";
        int most = -1;
        for (JsonNode priority : post("/prioritize", filterArgs(pod, names)).values()) {
            if (priority.path("Score").asInt() > most) {
                most = priority.path("Score").asInt();
                best = priority.path("Host").asString();
            }
        }
        ObjectNode binding = ApiServer.JSON
                .createObjectNode()
                .put("PodName", ClusterObjects.podName(i))
                .put("PodNamespace", "training")
                .put("PodUID", ClusterObjects.podUid(i))
                .put("Node", best);
        binds.execute(() -> bind(binding));
        return true;
    }

    private void bind(ObjectNode binding) {
        String error = post("/bind", binding).path("Error").asString();
        if (!error.isEmpty()) {
            throw new IllegalStateException("bind: " + error);
        }
    }

    private static ObjectNode filterArgs(ObjectNode pod, List<String> nodes) {
        ObjectNode arguments = ApiServer.JSON.createObjectNode();
        arguments.set("Pod", pod);
        arguments.putNull("Nodes");
        nodes.forEach(arguments.putArray("NodeNames")::add);
        return arguments;
    }

    private JsonNode post(String path, JsonNode arguments) {
        return ApiServer.JSON.readTree(
                client.post("http://127.0.0.1:" + ports.extender() + path, arguments.toString()));
    }
}
