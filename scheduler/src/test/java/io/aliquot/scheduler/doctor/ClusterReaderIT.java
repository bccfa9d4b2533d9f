package io.aliquot.scheduler.doctor;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.testing.ApiServer;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.Namespace;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.apps.DaemonSet;
import io.fabric8.kubernetes.api.model.coordination.v1.Lease;
import io.fabric8.kubernetes.api.model.rbac.ClusterRole;
import io.fabric8.kubernetes.api.model.rbac.ClusterRoleBinding;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.nio.file.Path;
import java.time.Clock;
import java.time.Duration;
import java.time.ZoneOffset;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The lists of a real API server, which stamps a kubelet's writes with its own time. */
class ClusterReaderIT {
    private static final Duration MINUTE = Duration.ofMinutes(1);

    private static ApiServer server;
    private static KubernetesClient client;

    @BeforeAll
    static void start(@TempDir Path folder) throws Exception {
        server = new ApiServer(folder);
        client = new KubernetesClientBuilder()
                .withConfig(server.client().build())
                .build();
    }

    @AfterAll
    static void stop() throws Exception {
        client.close();
        server.close();
    }

    @Test
    void aClusterWithoutAliquotAndANodeWhoseClockIsAMinuteBehind() {
        create(client, Namespace.class, "{metadata: {name: team, labels: {aliquot.io/webhook: ignore}}}");
        create(client, Node.class, "{metadata: {name: node1, labels: {gpu: 'on'}}}");
        create(client, Node.class, "{metadata: {name: node2}}");
        Lease lease = Installation.read(
                Lease.class, "{metadata: {name: node1, namespace: kube-node-lease}, spec: {holderIdentity: node1}}");
        lease.getSpec().setRenewTime(Clock.systemUTC().instant().minus(MINUTE).atZone(ZoneOffset.UTC));
        client.resource(lease).create();

        ClusterState state = new ClusterReader(client).read();

        assertThat(state.nodes())
                .extracting(node -> node.getMetadata().getName())
                .containsExactly("node1");
        assertThat(NodeChecks.all(state)).extracting(Finding::check).containsExactly("agent", "clock");
        assertThat(ClusterChecks.all(state, Clock.systemUTC().instant()))
                .extracting(Finding::check)
                .containsExactly("installation");

        try (KubernetesClient stranger = new KubernetesClientBuilder()
                .withConfig(server.client()
                        .withImpersonateUsername("stranger")
                        .withImpersonateGroups("system:authenticated")
                        .build())
                .build()) {
            var reader = new ClusterReader(stranger);
            assertThatThrownBy(reader::read)
                    .isInstanceOfSatisfying(
                            KubernetesClientException.class,
                            e -> assertThat(Doctor.message(e)).contains("User \"stranger\" cannot list resource"));
        }
    }

    @Test
    void anAgentThatMayNotPatchNodesAndASchedulerWithoutAnyRight() {
        create(client, Namespace.class, "{metadata: {name: aliquot}}");
        create(client, DaemonSet.class, """
                metadata: {name: aliquot-device-plugin, namespace: aliquot, labels: {app.kubernetes.io/name: aliquot}}
                spec:
                  selector: {matchLabels: {app: agent}}
                  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: agent, image: agent}]}}
                """);
        create(client, ClusterRole.class, """
                metadata: {name: aliquot-device-plugin}
                rules:
                - {apiGroups: [""], resources: [nodes], verbs: [list, watch]}
                - {apiGroups: [""], resources: [nodes/status], verbs: [patch]}
                - {apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [list, watch]}
                - {apiGroups: [nvidia.com], resources: [clusterpolicies, gpuclusters], verbs: [list]}
                """);
        create(client, ClusterRoleBinding.class, """
                metadata: {name: aliquot-device-plugin}
                roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: aliquot-device-plugin}
                subjects: [{kind: ServiceAccount, name: aliquot-device-plugin, namespace: aliquot}]
                """);
        try {
            List<Right> refused = new ClusterReader(client).read().refused();

            assertThat(refused)
                    .filteredOn(right -> right.account().equals("aliquot-device-plugin"))
                    .containsExactly(new Right("aliquot-device-plugin", "", "", "nodes", "", "patch"));
            assertThat(refused)
                    .filteredOn(right -> !right.account().equals("aliquot-device-plugin"))
                    .containsExactlyElementsOf(Right.needed("aliquot", false).stream()
                            .filter(right -> !right.account().equals("aliquot-device-plugin"))
                            .toList());
        } finally {
            client.apps().daemonSets().inNamespace("aliquot").delete();
        }
    }

    private static <T extends HasMetadata> void create(KubernetesClient client, Class<T> type, String yaml) {
        client.resource(Installation.read(type, yaml)).create();
    }
}
