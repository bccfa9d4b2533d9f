package io.aliquot.scheduler.doctor;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.scheduler.extensionapi.Authority;
import io.fabric8.kubernetes.api.model.APIService;
import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.EventBuilder;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfiguration;
import io.fabric8.kubernetes.api.model.apps.DaemonSet;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import io.fabric8.kubernetes.api.model.coordination.v1.Lease;
import io.fabric8.kubernetes.api.model.discovery.v1.EndpointSlice;
import io.fabric8.kubernetes.api.model.node.v1.RuntimeClass;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateEncodingException;
import java.security.cert.X509Certificate;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;

/** A healthy installation with one node, as the API server returns it; a test changes what is to be wrong. */
final class Installation {
    private static final KubernetesSerialization YAML = new KubernetesSerialization();

    final Authority authority;
    String version = "v1.35.4";
    final List<Deployment> deployments = new ArrayList<>();
    final DaemonSet agents;
    final List<Pod> pods = new ArrayList<>();
    final MutatingWebhookConfiguration webhook;
    final List<MutatingWebhookConfiguration> otherWebhooks = new ArrayList<>();
    Optional<APIService> apiService;
    final List<EndpointSlice> endpoints = new ArrayList<>();
    final List<RuntimeClass> runtimeClasses = new ArrayList<>();
    final Node node;
    final Lease lease;
    final List<Pod> ignored = new ArrayList<>();
    final List<Pod> starting = new ArrayList<>();
    final Map<String, List<Event>> warnings = new HashMap<>();
    final Map<String, String> readiness = new HashMap<>();
    final List<Right> refused = new ArrayList<>();
    final Map<String, X509Certificate> serving = new HashMap<>();

    Installation() throws Exception {
        authority = new Authority("aliquot");
        deployments.add(deployment("aliquot-scheduler", "scheduler", "kube-scheduler"));
        deployments.add(deployment("aliquot-api", "api", "api"));
        agents = read(DaemonSet.class, """
                metadata: {name: aliquot-device-plugin, namespace: aliquot}
                spec:
                  template:
                    spec:
                      runtimeClassName: nvidia
                      containers:
                      - {name: device-plugin, image: "agent:1", env: [{name: NODE_NAME}, {name: ALIQUOT_NODE_LABEL, value: gpu=on}]}
                """);
        pods.add(pod("aliquot-scheduler-a", "scheduler", "node0"));
        pods.add(pod("aliquot-device-plugin-a", "device-plugin", "node1"));
        webhook = read(MutatingWebhookConfiguration.class, """
                metadata: {name: aliquot}
                webhooks:
                - {name: gpu.aliquot.io, clientConfig: {caBundle: %1$s}, matchConditions: [{name: ours, expression: "k in ['aliquot.io/vgpu', 'nvidia.com/gpumem']"}]}
                - {name: update.gpu.aliquot.io, clientConfig: {caBundle: %1$s}}
                """.formatted(bundle(authority.certificate)));
        apiService = Optional.of(read(APIService.class, """
                metadata: {name: v1alpha1.gpu.aliquot.io}
                status: {conditions: [{type: Available, status: "True", reason: Passed}]}
                """));
        endpoints.add(endpoints("aliquot-webhook"));
        endpoints.add(endpoints("aliquot-extension-api"));
        runtimeClasses.add(read(RuntimeClass.class, "{metadata: {name: nvidia}, handler: nvidia}"));
        node = read(Node.class, """
                metadata: {name: node1, labels: {gpu: "on"}, annotations: {}}
                status:
                  allocatable: {cpu: "8", aliquot.io/vgpu: "10", nvidia.com/gpumem: "81920", nvidia.com/gpu: "0"}
                  conditions:
                  - {type: Ready, status: "True"}
                  - {type: AliquotGPUsHealthy, status: "True"}
                spec: {}
                """);
        inventory(healthyInventory());
        lease = read(Lease.class, """
                metadata:
                  name: node1
                  managedFields:
                  - {manager: kubelet, time: "2026-11-29T12:00:00Z", fieldsV1: {"f:spec": {"f:renewTime": {}}}}
                spec: {renewTime: "2026-11-29T11:59:59.900000Z"}
                """);
        serving.put("aliquot-scheduler-a", authority.client("aliquot-webhook").certificate());
    }

    ClusterState state() {
        var webhooks = new ArrayList<>(otherWebhooks);
        webhooks.add(webhook);
        return new ClusterState(
                version,
                deployments,
                List.of(agents),
                pods,
                webhooks,
                apiService,
                endpoints,
                runtimeClasses,
                List.of(node),
                List.of(lease),
                ignored,
                starting,
                warnings,
                readiness,
                refused,
                serving);
    }

    /** All findings, with a clock at which the certificates are valid. */
    List<Finding> findings() {
        Instant valid = authority.certificate.getNotBefore().toInstant().plusSeconds(3600);
        var findings = new ArrayList<>(ClusterChecks.all(state(), valid));
        findings.addAll(NodeChecks.all(state()));
        return findings;
    }

    Pod agent() {
        return pods.get(1);
    }

    void inventory(Inventory inventory) {
        node.getMetadata().getAnnotations().put(Annotations.GPUS, inventory.print());
    }

    static Inventory healthyInventory() {
        var gpu = new Gpu(
                "GPU-00000000-0000-0000-0000-000000000000",
                0,
                "NVIDIA A100-SXM4-80GB",
                81920,
                256,
                0,
                Gpu.HEALTHY,
                Gpu.SHIM,
                Map.of());
        return new Inventory(new VisibleDevices("{uuid}"), Scaling.ONE, Scaling.ONE, 10, List.of(gpu));
    }

    /** The containers of a pod are as this YAML says, and the pod is not ready. */
    static void unready(Pod pod, String containerStatuses) {
        Pod other = read(
                Pod.class,
                "{status: {phase: Running, conditions: [{type: Ready, status: 'False'}], containerStatuses: "
                        + containerStatuses + "}}");
        pod.setStatus(other.getStatus());
    }

    static Event warning(String reason, String message) {
        return new EventBuilder().withReason(reason).withMessage(message).build();
    }

    static String bundle(X509Certificate... certificates) {
        String pem = Arrays.stream(certificates).map(Installation::pem).collect(Collectors.joining());
        return Base64.getEncoder().encodeToString(pem.getBytes(StandardCharsets.US_ASCII));
    }

    private static String pem(X509Certificate certificate) {
        try {
            return "-----BEGIN CERTIFICATE-----\n"
                    + Base64.getMimeEncoder().encodeToString(certificate.getEncoded())
                    + "\n-----END CERTIFICATE-----\n";
        } catch (CertificateEncodingException e) {
            throw new AssertionError(e);
        }
    }

    static <T> T read(Class<T> type, String yaml) {
        return YAML.unmarshal("---\n" + yaml, type);
    }

    private static Deployment deployment(String name, String component, String container) {
        return read(Deployment.class, """
                metadata: {name: %s, namespace: aliquot, labels: {app.kubernetes.io/component: %s}}
                spec: {replicas: 2, template: {spec: {containers: [{name: %s, image: "registry.k8s.io/kube-scheduler:v1.35.4"}]}}}
                status: {availableReplicas: 2}
                """.formatted(name, component, container));
    }

    private static Pod pod(String name, String component, String node) {
        return read(Pod.class, """
                metadata:
                  name: %1$s
                  uid: %1$s
                  namespace: aliquot
                  labels: {app.kubernetes.io/component: %2$s, app.kubernetes.io/version: "0.2.0"}
                spec: {nodeName: %3$s, containers: [{name: main}]}
                status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
                """.formatted(name, component, node));
    }

    private static EndpointSlice endpoints(String service) {
        return read(EndpointSlice.class, """
                metadata: {labels: {kubernetes.io/service-name: %s}}
                endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}]
                """.formatted(service));
    }
}
