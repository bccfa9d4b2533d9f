package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.foreign.HamiRegistration;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.Inventory;
import io.fabric8.kubernetes.api.model.NodeStatus;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodSpec;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/** The release with {@code sharedNames=true}, beside HAMi's webhook. */
@ExtendWith(LabExtension.class)
@Isolated
class SharedNamesIT {
    /** As HAMi's chart renders it (charts/hami/templates/scheduler/webhook.yaml); HAMi itself does not run. */
    private static final String HAMI_WEBHOOK = """
            apiVersion: admissionregistration.k8s.io/v1
            kind: MutatingWebhookConfiguration
            metadata: {name: hami-webhook}
            webhooks:
            - name: vgpu.hami.io
              admissionReviewVersions: [v1beta1]
              clientConfig: {service: {name: hami-scheduler, namespace: hami, path: /webhook/mutating, port: 443}}
              failurePolicy: Ignore
              matchPolicy: Equivalent
              namespaceSelector:
                matchExpressions:
                - {key: hami.io/webhook, operator: NotIn, values: [ignore]}
                - {key: kubernetes.io/metadata.name, operator: In, values: [%s]}
              objectSelector: {matchExpressions: [{key: hami.io/webhook, operator: NotIn, values: [ignore]}]}
              reinvocationPolicy: Never
              rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods], scope: "*"}]
              sideEffects: None
              timeoutSeconds: 10
            """;

    /** All that the node's device plugin has to give. */
    private static final int HAMI_PODS = 8;

    /** 1.5 times the memory of the node's two GPUs. */
    private static final int SCALED_MIB = 245_760;

    @Test
    void whereNamesAreSharedHamisPodsAreLeftAloneAndAliquotsAreLabeled(Lab lab, TestNamespace namespace) {
        Map<String, String> limits = Map.of(ForeignResources.NVIDIA_GPU, "1", Resources.MEMORY, "3000");
        lab.client().load(stream(HAMI_WEBHOOK.formatted(namespace.name()))).create();
        lab.upgrade("sharedNames=true");
        try {
            awaitTrue(
                    "HAMi's pod is left alone",
                    EVENTUALLY,
                    () -> getsScheduler(namespace, limits, "default-scheduler"));
            Pod hami = Pods.withLimits(lab, "hami", limits);
            hami.getSpec().setSchedulerName("hami-scheduler");
            hami.getSpec().setNodeName("elsewhere");

            PodSpec stored = namespace.create(hami).getSpec();

            assertThat(stored.getSchedulerName()).isEqualTo("hami-scheduler");
            assertThat(stored.getContainers().get(0).getEnv()).isEmpty();
            assertThat(stored.getContainers().get(0).getResources().getLimits())
                    .isEqualTo(
                            hami.getSpec().getContainers().get(0).getResources().getLimits());
            OwnershipIT.assertTranslated(namespace.run(Pods.labeled(Pods.withLimits(lab, "labeled", limits))));
            namespace.run(Pods.withLimits(lab, "vgpu", Map.of(Resources.VGPU, "1", Resources.MEMORY, "3000")));
        } finally {
            lab.upgrade("sharedNames=false");
            lab.client().load(stream(HAMI_WEBHOOK.formatted(namespace.name()))).delete();
            awaitTrue(
                    "memory makes a pod Aliquot's again",
                    EVENTUALLY,
                    () -> getsScheduler(namespace, limits, "aliquot-scheduler"));
        }
    }

    /**
     * A node that HAMi serves with memory scaled by 1.5, and labels as its documentation says. The kubelet rejects running pods
     * at its restart if the Node has less of a resource than they request, and ignores resources that the Node lacks. HAMi
     * does not run: NVIDIA's plugin is in the place of HAMi's.
     */
    @Test
    @LongTier.Only
    void aNodeOfHamiAndItsPodsStayAsTheyAreWhileTheAgentComesTheKubeletRestartsAndTheAgentLeaves(
            Lab lab, TestNamespace namespace) {
        String node = lab.otherNode();
        Map<String, String> limits =
                Map.of(ForeignResources.NVIDIA_GPU, "1", Resources.MEMORY, Integer.toString(SCALED_MIB / HAMI_PODS));
        lab.upgrade("sharedNames=true");
        try {
            awaitTrue(
                    "HAMi's pods are left alone",
                    EVENTUALLY,
                    () -> getsScheduler(namespace, limits, "default-scheduler"));
            for (int i = 0; i < HAMI_PODS; i++) {
                Pod pod = Pods.withLimits(lab, "hami-" + i, limits);
                pod.getMetadata().setLabels(Map.of("hami.io/vgpu-node", node));
                pod.getMetadata().setAnnotations(Map.of("hami.io/bind-phase", "success"));
                pod.getSpec().setSchedulerName("hami-scheduler");
                pod.getSpec().setNodeName(node);
                namespace.create(pod);
            }
            for (int i = 0; i < HAMI_PODS; i++) {
                namespace.awaitRunning("hami-" + i, EVENTUALLY);
            }
            lab.kubectl(
                            "annotate",
                            "node",
                            node,
                            HamiRegistration.REGISTER + "=GPU-0,10,122880,100,NVIDIA-A100,0,true:",
                            HamiRegistration.HANDSHAKES.getFirst() + "=Requesting_2026.11.28 03:00:00")
                    .expectSuccess();
            Map<String, Object> before = state(namespace, node);

            lab.kubectl("label", "node", node, Labels.GPU + "=" + Labels.GPU_ON).expectSuccess();
            awaitTrue(
                    "the agent reports the conflict",
                    EVENTUALLY,
                    () -> inventory(lab, node)
                            .filter(inventory ->
                                    inventory.withheld() && inventory.conflict().startsWith(Inventory.HAMI))
                            .isPresent());
            awaitTrue(
                    "the scheduler says so",
                    EVENTUALLY,
                    () -> lab.nodeEvents(node).stream()
                            .anyMatch(event -> event.getMessage().startsWith(Inventory.HAMI)));
            assertThat(state(namespace, node)).isEqualTo(before);
            assertThat(lab.kubectl(
                                    "get",
                                    "gpunode",
                                    node,
                                    "-o",
                                    "jsonpath={.status.schedulable} {.status.conditions[?(@.type==\"SoleGpuOwner\")].reason}")
                            .expectSuccess())
                    .isEqualTo("false HAMi");

            lab.kill(node + "/kubelet");
            lab.start(node + "/kubelet");
            awaitTrue(
                    "the node is as before",
                    EVENTUALLY.multipliedBy(2),
                    () -> state(namespace, node).equals(before));

            lab.kubectl("label", "node", node, Labels.GPU + "-").expectSuccess();
            awaitTrue(
                    "the agent has left",
                    EVENTUALLY.multipliedBy(2),
                    () -> inventory(lab, node).isEmpty());
            assertThat(state(namespace, node)).isEqualTo(before);
        } finally {
            lab.kubectl("label", "node", node, Labels.GPU + "-");
            lab.kubectl(
                    "annotate",
                    "node",
                    node,
                    HamiRegistration.REGISTER + "-",
                    HamiRegistration.HANDSHAKES.getFirst() + "-");
            namespace.deleteAllPods();
            lab.upgrade("sharedNames=false");
        }
    }

    /** What the kubelet and HAMi read of the node and of the namespace's pods; without times, which the kubelet renews. */
    private static Map<String, Object> state(TestNamespace namespace, String node) {
        NodeStatus status = namespace.client().nodes().withName(node).get().getStatus();
        Map<String, Object> state = new TreeMap<>();
        state.put("capacity", status.getCapacity());
        state.put("allocatable", status.getAllocatable());
        status.getConditions().forEach(condition -> state.put(condition.getType(), condition.getStatus()));
        namespace
                .client()
                .pods()
                .inNamespace(namespace.name())
                .list()
                .getItems()
                .forEach(pod -> {
                    state.put(pod.getMetadata().getName() + " spec", pod.getSpec());
                    state.put(
                            pod.getMetadata().getName(),
                            List.of(
                                    pod.getMetadata().getUid(),
                                    pod.getMetadata().getLabels(),
                                    pod.getMetadata().getAnnotations(),
                                    pod.getStatus().getPhase(),
                                    pod.getStatus().getContainerStatuses()));
                });
        return state;
    }

    private static Optional<Inventory> inventory(Lab lab, String node) {
        return Optional.ofNullable(
                        lab.client().nodes().withName(node).get().getMetadata().getAnnotations())
                .map(annotations -> annotations.get(Annotations.GPUS))
                .map(Inventory::parse);
    }

    /** Whether a pod gets this scheduler. After an upgrade, webhooks and policies change at different moments. */
    private static boolean getsScheduler(TestNamespace namespace, Map<String, String> limits, String expected) {
        try {
            return namespace
                    .client()
                    .resource(Pods.withLimits(namespace.lab(), "probe", limits))
                    .inNamespace(namespace.name())
                    .dryRun()
                    .create()
                    .getSpec()
                    .getSchedulerName()
                    .equals(expected);
        } catch (KubernetesClientException e) {
            return false;
        }
    }

    private static InputStream stream(String text) {
        return new ByteArrayInputStream(text.getBytes(UTF_8));
    }
}
