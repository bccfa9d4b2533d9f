package io.aliquot.scheduler.doctor;

import io.aliquot.api.nodes.NodeLabel;
import io.fabric8.kubernetes.api.model.APIService;
import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodTemplateSpec;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfiguration;
import io.fabric8.kubernetes.api.model.apps.DaemonSet;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import io.fabric8.kubernetes.api.model.coordination.v1.Lease;
import io.fabric8.kubernetes.api.model.discovery.v1.EndpointSlice;
import io.fabric8.kubernetes.api.model.node.v1.RuntimeClass;
import java.security.cert.X509Certificate;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * What {@link ClusterReader} has read: objects of Kubernetes as they are, so that each check is a function of them.
 *
 * @param kubernetesVersion the API server's, such as {@code v1.35.4}
 * @param deployments of the release
 * @param daemonSets of the release
 * @param pods of the release
 * @param webhooks all MutatingWebhookConfigurations of the cluster
 * @param apiService that of {@code gpu.aliquot.io}; empty if there is none
 * @param endpoints of the release's Services
 * @param runtimeClasses all of the cluster
 * @param nodes those with the {@link NodeLabel} of the release
 * @param leases the kubelets', of all nodes
 * @param ignored Pending pods of the namespaces that have {@code aliquot.io/webhook=ignore}
 * @param starting pods of Aliquot's that are bound and not ready
 * @param warnings events of type Warning about the pods of the release that are not ready and about {@code starting}, oldest
 *     first, by the pod's UID
 * @param readiness what pods of the release that are not ready say at {@code /readyz}, by the pod's UID; those that say
 *     nothing are missing
 * @param refused rights that accounts of the release need and the API server refuses
 * @param serving the certificate that each scheduler pod serves to the API server, by the pod's UID; pods to which no
 *     connection was possible are missing
 */
record ClusterState(
        String kubernetesVersion,
        List<Deployment> deployments,
        List<DaemonSet> daemonSets,
        List<Pod> pods,
        List<MutatingWebhookConfiguration> webhooks,
        Optional<APIService> apiService,
        List<EndpointSlice> endpoints,
        List<RuntimeClass> runtimeClasses,
        List<Node> nodes,
        List<Lease> leases,
        List<Pod> ignored,
        List<Pod> starting,
        Map<String, List<Event>> warnings,
        Map<String, String> readiness,
        List<Right> refused,
        Map<String, X509Certificate> serving) {
    static final String SCHEDULER = "aliquot-scheduler";
    static final String AGENT = "aliquot-device-plugin";
    static final String WEBHOOK = "aliquot-webhook";
    static final String EXTENSION_API = "aliquot-extension-api";
    static final String API_SERVICE = "v1alpha1.gpu.aliquot.io";
    static final String COMPONENT = "app.kubernetes.io/component";

    /** The namespace of the release; the chart's example if no release was found. */
    String namespace() {
        return namespace(deployments, daemonSets).orElse("aliquot");
    }

    /** The namespace of the release that has these; empty if there are none. */
    static Optional<String> namespace(List<Deployment> deployments, List<DaemonSet> daemonSets) {
        return Stream.concat(deployments.stream(), daemonSets.stream())
                .findFirst()
                .map(one -> one.getMetadata().getNamespace());
    }

    Optional<Deployment> deployment(String name) {
        return named(deployments, name);
    }

    boolean hasApi() {
        return hasApi(deployments);
    }

    /** Whether the chart of a release with these Deployments has installed the aggregated API. */
    static boolean hasApi(List<Deployment> deployments) {
        return named(deployments, "aliquot-api").isPresent();
    }

    Optional<RuntimeClass> runtimeClass(String name) {
        return named(runtimeClasses, name);
    }

    /** The RuntimeClass of the node agents and of pods with shares, as the chart names it; empty if it names none. */
    Optional<String> runtimeClassName() {
        return agentTemplate().map(pod -> pod.getSpec().getRuntimeClassName());
    }

    Optional<PodTemplateSpec> agentTemplate() {
        return named(daemonSets, AGENT).map(set -> set.getSpec().getTemplate());
    }

    NodeLabel nodeLabel() {
        return nodeLabel(daemonSets);
    }

    /** As the chart tells it to the node agents. */
    static NodeLabel nodeLabel(List<DaemonSet> daemonSets) {
        return named(daemonSets, AGENT).stream()
                .flatMap(set -> set.getSpec().getTemplate().getSpec().getContainers().stream())
                .flatMap(container -> container.getEnv().stream())
                .filter(variable -> variable.getName().equals("ALIQUOT_NODE_LABEL"))
                .findFirst()
                .map(variable -> NodeLabel.parse(variable.getValue()))
                .orElse(NodeLabel.DEFAULT);
    }

    /** The pods of a component of the release that are not being deleted. */
    List<Pod> podsOf(String component) {
        return pods.stream()
                .filter(pod -> component.equals(pod.getMetadata().getLabels().get(COMPONENT)))
                .filter(pod -> pod.getMetadata().getDeletionTimestamp() == null)
                .toList();
    }

    private static <T extends HasMetadata> Optional<T> named(List<T> objects, String name) {
        return objects.stream()
                .filter(one -> one.getMetadata().getName().equals(name))
                .findFirst();
    }
}
