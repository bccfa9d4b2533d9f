package io.aliquot.scheduler.doctor;

import io.aliquot.api.names.Labels;
import io.aliquot.api.nodes.NodeLabel;
import io.aliquot.api.tls.PinnedTrust;
import io.aliquot.api.tls.TlsContext;
import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.ListOptions;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.apps.DaemonSet;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import io.fabric8.kubernetes.api.model.node.v1.RuntimeClass;
import io.fabric8.kubernetes.client.KubernetesClient;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import javax.net.ssl.SSLSocket;

/** Reads what the doctor looks at: lists, one get and questions about rights, with those of the caller. Writes nothing. */
final class ClusterReader {
    private static final String RELEASE = "app.kubernetes.io/name=aliquot";
    private static final String SERVICES =
            "kubernetes.io/service-name in (" + ClusterState.WEBHOOK + "," + ClusterState.EXTENSION_API + ")";
    private static final Duration TIMEOUT = Duration.ofSeconds(2);
    /** Where everything fails, the first ones tell why. */
    private static final int MOST_PODS_EXPLAINED = 50;

    private final KubernetesClient client;
    private final ApiServerClient apiServer;

    ClusterReader(KubernetesClient client) {
        this.client = client;
        this.apiServer = new ApiServerClient(client.getConfiguration());
    }

    /**
     * Reads the cluster.
     *
     * @throws io.fabric8.kubernetes.client.KubernetesClientException if the API server does not answer, or the caller may not
     *     list what is needed
     */
    ClusterState read() {
        ListOptions release =
                new ListOptionsBuilder().withLabelSelector(RELEASE).build();
        List<DaemonSet> daemonSets =
                client.apps().daemonSets().inAnyNamespace().list(release).getItems();
        List<Deployment> deployments =
                client.apps().deployments().inAnyNamespace().list(release).getItems();
        List<Pod> pods = client.pods().inAnyNamespace().list(release).getItems();
        List<Pod> starting = pods("spec.schedulerName=" + ClusterState.SCHEDULER
                        + ",status.phase!=Succeeded,status.phase!=Failed")
                .filter(pod -> pod.getSpec().getNodeName() != null && !PodTrouble.isReady(pod))
                .toList();
        List<Pod> unready = pods.stream()
                .filter(pod -> !PodTrouble.isReady(pod) && !PodTrouble.hasEnded(pod))
                .limit(MOST_PODS_EXPLAINED)
                .toList();
        NodeLabel label = ClusterState.nodeLabel(daemonSets);
        return new ClusterState(
                client.getKubernetesVersion().getGitVersion(),
                deployments,
                daemonSets,
                pods,
                client.admissionRegistration()
                        .v1()
                        .mutatingWebhookConfigurations()
                        .list()
                        .getItems(),
                Optional.ofNullable(
                        client.apiServices().withName(ClusterState.API_SERVICE).get()),
                client.discovery()
                        .v1()
                        .endpointSlices()
                        .inAnyNamespace()
                        .list(new ListOptionsBuilder()
                                .withLabelSelector(SERVICES)
                                .build())
                        .getItems(),
                client.resources(RuntimeClass.class).list().getItems(),
                client.nodes().withLabel(label.key(), label.value()).list().getItems(),
                client.leases().inNamespace("kube-node-lease").list().getItems(),
                ignored(),
                starting,
                warnings(Stream.concat(unready.stream(), starting.stream().limit(MOST_PODS_EXPLAINED))
                        .toList()),
                readiness(unready),
                ClusterState.namespace(deployments, daemonSets).stream()
                        .flatMap(namespace -> refused(namespace, ClusterState.hasApi(deployments)))
                        .toList(),
                serving(pods));
    }

    /** By the API server's own answers, which count all roles, bindings and authorizers, and which nothing stores. */
    private Stream<Right> refused(String namespace, boolean api) {
        return Right.needed(namespace, api).stream()
                .filter(right -> !client.authorization()
                        .v1()
                        .subjectAccessReview()
                        .create(right.question(namespace))
                        .getStatus()
                        .getAllowed());
    }

    private Stream<Pod> pods(String fields) {
        return client
                .pods()
                .inAnyNamespace()
                .list(new ListOptionsBuilder().withFieldSelector(fields).build())
                .getItems()
                .stream();
    }

    private List<Pod> ignored() {
        return client.namespaces().withLabel(Labels.WEBHOOK, Labels.WEBHOOK_IGNORE).list().getItems().stream()
                .flatMap(namespace ->
                        pods("metadata.namespace=" + namespace.getMetadata().getName() + ",status.phase=Pending"))
                .toList();
    }

    private Map<String, List<Event>> warnings(List<Pod> pods) {
        var warnings = new HashMap<String, List<Event>>();
        for (Pod pod : pods) {
            warnings.put(pod.getMetadata().getUid(), events(client, pod));
        }
        return warnings;
    }

    /** The events of type Warning about a pod, oldest first. */
    static List<Event> events(KubernetesClient client, Pod pod) {
        var list = new ArrayList<>(client.v1()
                .events()
                .inNamespace(pod.getMetadata().getNamespace())
                .list(new ListOptionsBuilder()
                        .withFieldSelector("type=Warning,involvedObject.uid="
                                + pod.getMetadata().getUid())
                        .build())
                .getItems());
        list.sort(Comparator.comparing(ClusterReader::time));
        return list;
    }

    /** The time of an event in RFC 3339; kube-scheduler's events have no lastTimestamp. */
    private static String time(Event event) {
        return event.getLastTimestamp() != null
                ? event.getLastTimestamp()
                : event.getMetadata().getCreationTimestamp();
    }

    private Map<String, String> readiness(List<Pod> pods) {
        var answers = new HashMap<String, String>();
        for (Pod pod : pods) {
            port(pod, "metrics")
                    .flatMap(port -> readiness(pod, port))
                    .ifPresent(answer -> answers.put(pod.getMetadata().getUid(), answer));
        }
        return answers;
    }

    /** What a pod says of its readiness. */
    private Optional<String> readiness(Pod pod, int port) {
        var metrics = new PodPort(
                pod.getMetadata().getNamespace(),
                pod.getMetadata().getName(),
                Optional.ofNullable(pod.getStatus().getPodIP()),
                port);
        try {
            // The API server's own error is a Status, in JSON.
            return Optional.of(metrics.get(apiServer, "/readyz").text()).filter(text -> !text.startsWith("{"));
        } catch (IOException e) {
            return Optional.empty();
        }
    }

    private static Map<String, X509Certificate> serving(List<Pod> pods) {
        var certificates = new HashMap<String, X509Certificate>();
        for (Pod pod : pods) {
            if (PodTrouble.isReady(pod)) {
                port(pod, "webhooks")
                        .flatMap(port -> served(pod.getStatus().getPodIP(), port))
                        .ifPresent(certificate ->
                                certificates.put(pod.getMetadata().getUid(), certificate));
            }
        }
        return certificates;
    }

    /** The certificate that a port serves; empty if it is not reachable from here, as from outside the cluster. */
    private static Optional<X509Certificate> served(String address, int port) {
        var context = TlsContext.of(TlsContext.NO_KEY, new PinnedTrust(any -> {}));
        try (var socket = (SSLSocket) context.getSocketFactory().createSocket()) {
            socket.connect(new InetSocketAddress(address, port), (int) TIMEOUT.toMillis());
            socket.setSoTimeout((int) TIMEOUT.toMillis());
            socket.startHandshake();
            return Optional.of((X509Certificate) socket.getSession().getPeerCertificates()[0]);
        } catch (IOException e) {
            return Optional.empty();
        }
    }

    private static Optional<Integer> port(Pod pod, String name) {
        return pod.getSpec().getContainers().stream()
                .flatMap(container -> container.getPorts().stream())
                .filter(port -> name.equals(port.getName()))
                .map(port -> port.getContainerPort())
                .findFirst();
    }
}
