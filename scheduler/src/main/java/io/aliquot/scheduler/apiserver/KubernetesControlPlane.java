package io.aliquot.scheduler.apiserver;

import io.aliquot.scheduler.apiserver.leadership.Leadership;
import io.aliquot.scheduler.extensionapi.identity.ControlPlane;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.settings.Settings;
import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import org.springframework.stereotype.Component;

/** What the aggregated API reads: how the API server identifies itself, and the leader's address. */
@Component
final class KubernetesControlPlane implements ControlPlane {
    private static final Duration TIMEOUT = Duration.ofSeconds(4);
    /** The TLS port of every replica. */
    private static final int PORT = 9443;

    private final KubernetesClient kubernetes;
    private final Leadership leadership;
    private final Settings settings;

    KubernetesControlPlane(KubernetesClient kubernetes, Leadership leadership, Settings settings) {
        this.kubernetes = KubernetesConfiguration.withTimeout(kubernetes, TIMEOUT);
        this.leadership = leadership;
        this.settings = settings;
    }

    @Override
    public Map<String, String> authentication() {
        try {
            ConfigMap map = kubernetes
                    .configMaps()
                    .inNamespace("kube-system")
                    .withName("extension-apiserver-authentication")
                    .get();
            return map == null || map.getData() == null ? Map.of() : map.getData();
        } catch (KubernetesClientException e) {
            throw unavailable(e);
        }
    }

    @Override
    public Optional<InetSocketAddress> leader() {
        return leadership.leaderPod().flatMap(this::address);
    }

    private Optional<InetSocketAddress> address(String name) {
        try {
            Pod pod = kubernetes
                    .pods()
                    .inNamespace(settings.namespace())
                    .withName(name)
                    .get();
            if (pod == null || pod.getStatus() == null || pod.getStatus().getPodIP() == null) {
                return Optional.empty();
            }
            return Optional.of(
                    InetSocketAddress.createUnresolved(pod.getStatus().getPodIP(), PORT));
        } catch (KubernetesClientException e) {
            throw unavailable(e);
        }
    }

    private static StatusException unavailable(KubernetesClientException e) {
        return StatusException.unavailable(
                "the API server gave no answer, try again: " + KubernetesConfiguration.message(e));
    }
}
