package io.aliquot.training;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.IntStream;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/** The objects of the training cluster, made from recorded ones, which are resources of this package. */
final class ClusterObjects {
    static final String NAMESPACE = "aliquot";
    static final String SCHEDULER_POD = "aliquot-scheduler-0";

    /** What the pods request, in turn. The last one fits on no node. */
    private static final List<Map<String, String>> LIMITS = List.of(
            Map.of("aliquot.io/vgpu", "1", "nvidia.com/gpumem", "6000"),
            Map.of("aliquot.io/vgpu", "1", "nvidia.com/gpumem", "16000", "nvidia.com/gpucores", "30"),
            Map.of("aliquot.io/vgpu", "1", "nvidia.com/gpumem", "6000"),
            Map.of("aliquot.io/vgpu", "1", "nvidia.com/gpumem-percentage", "25", "nvidia.com/gpucores", "25"),
            Map.of("aliquot.io/vgpu", "1", "nvidia.com/gpumem", "6000"),
            Map.of("aliquot.io/vgpu", "1"),
            Map.of("aliquot.io/vgpu", "1", "nvidia.com/gpumem", "6000"),
            Map.of("aliquot.io/vgpu", "2", "nvidia.com/gpumem", "10000"));

    private static final Map<String, String> TOO_LARGE = Map.of("aliquot.io/vgpu", "9");
    /** Of so many pods one fits on no node. */
    private static final int ONE_TOO_LARGE_OF = 50;

    private static final String NODES = "/api/v1/nodes/";
    private static final String PODS = "/api/v1/namespaces/training/pods/";
    private static final String LEASE =
            "/apis/coordination.k8s.io/v1/namespaces/" + NAMESPACE + "/leases/aliquot-scheduler";
    private static final String WEBHOOKS =
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/aliquot";

    private static final String API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.gpu.aliquot.io";

    private final ApiServer apiServer;
    private final String pod = recorded("pod.json");
    private final String review = recorded("review.json");

    ClusterObjects(ApiServer apiServer) {
        this.apiServer = apiServer;
    }

    private static String recorded(String name) {
        try (InputStream in = Objects.requireNonNull(ClusterObjects.class.getResourceAsStream(name), name)) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static ObjectNode parse(String json) {
        return (ObjectNode) ApiServer.JSON.readTree(json);
    }

    /** What the scheduler finds when it starts: nodes, webhooks, its APIService, and the Lease of a process before it. */
    void createInitial(int nodes) {
        String node = recorded("node.json");
        for (int i = 0; i < nodes; i++) {
            String id = "%05d".formatted(i);
            apiServer.put(NODES + nodeName(i), parse(node.replace("${id}", id)));
        }
        apiServer.put(WEBHOOKS, parse(recorded("webhooks.json")));
        apiServer.put(API_SERVICE, parse("""
                {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                 "metadata": {"name": "v1alpha1.gpu.aliquot.io"}, "spec": {}}"""));
        apiServer.put(LEASE, parse(recorded("lease.json").replace("${holder}", SCHEDULER_POD + "_1")));
    }

    /** As kube-scheduler does every two seconds. */
    void renewLease() {
        apiServer.put(LEASE, Objects.requireNonNull(apiServer.get(LEASE)));
    }

    /** As a kubelet does every few minutes, or when a condition changes. */
    void updateNode(int i) {
        apiServer.put(NODES + nodeName(i), Objects.requireNonNull(apiServer.get(NODES + nodeName(i))));
    }

    private static String nodeName(int i) {
        return "gpu-node-%05d".formatted(i);
    }

    static List<String> nodeNames(int nodes) {
        return IntStream.range(0, nodes).mapToObj(ClusterObjects::nodeName).toList();
    }

    static String podName(int i) {
        return "pod-%06d".formatted(i);
    }

    static String podUid(int i) {
        return "3f0c7a52-9d6e-4b1f-8c00-%012x".formatted(i);
    }

    static boolean tooLarge(int i) {
        return i % ONE_TOO_LARGE_OF == ONE_TOO_LARGE_OF - 1;
    }

    /** A pod that is about to be created. */
    ObjectNode newPod(int i) {
        ObjectNode object = parse(
                pod.replace("${name}", podName(i)).replace("${uid}", podUid(i)).replace("${now}", now()));
        ObjectNode limits = object.withObject("/spec/containers/0/resources/limits");
        (tooLarge(i) ? TOO_LARGE : LIMITS.get(i % LIMITS.size())).forEach(limits::put);
        return object;
    }

    String admissionReview(ObjectNode created) {
        ObjectNode sent = created.deepCopy();
        sent.withObject("spec").put("schedulerName", "default-scheduler");
        return review.replace("${name}", created.at("/metadata/name").asString())
                .replace("\"${object}\"", sent.toString());
    }

    void createPod(ObjectNode created) {
        apiServer.put(PODS + created.at("/metadata/name").asString(), created);
    }

    /** A pod as the API server has it. */
    ObjectNode pod(int i) {
        return Objects.requireNonNull(apiServer.get(PODS + podName(i)));
    }

    /** As the kubelet reports the end of a pod, and as it is deleted thereafter. */
    void endPod(int i) {
        ObjectNode ended = apiServer.get(PODS + podName(i));
        if (ended != null) {
            ended.withObject("status").put("phase", "Succeeded");
            apiServer.put(PODS + podName(i), ended);
            apiServer.delete(PODS + podName(i));
        }
    }

    /** As kube-scheduler does when no node fits. */
    void markUnschedulable(int i) {
        ObjectNode pending = pod(i);
        condition(pending, "False").put("reason", "Unschedulable").put("message", "0/100 nodes are available");
        apiServer.put(PODS + podName(i), pending);
    }

    /** As the API server does upon a Binding (k8s.io/kubernetes, pkg/registry/core/pod/storage, assignPod). */
    static void bind(ObjectNode bound, JsonNode binding) {
        bound.withObject("spec").put("nodeName", binding.at("/target/name").asString());
        ObjectNode annotations = bound.withObject("/metadata/annotations");
        binding.at("/metadata/annotations")
                .properties()
                .forEach(annotation -> annotations.set(annotation.getKey(), annotation.getValue()));
        condition(bound, "True");
    }

    private static ObjectNode condition(ObjectNode of, String status) {
        return of.withArray("/status/conditions")
                .addObject()
                .put("type", "PodScheduled")
                .put("status", status)
                .put("lastTransitionTime", now());
    }

    private static String now() {
        return Instant.now().truncatedTo(ChronoUnit.SECONDS).toString();
    }
}
