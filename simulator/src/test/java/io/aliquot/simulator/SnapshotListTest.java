package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fabric8.kubernetes.api.model.ListMetaBuilder;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.NodeListBuilder;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.PodListBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.server.mock.EnableKubernetesMockClient;
import io.fabric8.kubernetes.client.server.mock.KubernetesMockServer;
import org.junit.jupiter.api.Test;

@EnableKubernetesMockClient
@SuppressWarnings("NullAway.Init")
class SnapshotListTest {
    private KubernetesMockServer server;
    private KubernetesClient client;

    @Test
    void nodesAndPodsAreListedPageByPageAndNothingElseIsRequested() throws InterruptedException {
        server.expect()
                .get()
                .withPath("/api/v1/nodes?limit=500")
                .andReturn(
                        200,
                        new NodeListBuilder()
                                .withMetadata(new ListMetaBuilder()
                                        .withContinue("more")
                                        .build())
                                .addToItems(new NodeBuilder()
                                        .withNewMetadata()
                                        .withName("a")
                                        .endMetadata()
                                        .build())
                                .build())
                .once();
        server.expect()
                .get()
                .withPath("/api/v1/nodes?continue=more&limit=500")
                .andReturn(
                        200,
                        new NodeListBuilder()
                                .withMetadata(new ListMetaBuilder().build())
                                .addToItems(new NodeBuilder()
                                        .withNewMetadata()
                                        .withName("b")
                                        .endMetadata()
                                        .build())
                                .build())
                .once();
        server.expect()
                .get()
                .withPath("/api/v1/pods?limit=500")
                .andReturn(
                        200,
                        new PodListBuilder()
                                .withMetadata(new ListMetaBuilder().build())
                                .addToItems(new PodBuilder()
                                        .withNewMetadata()
                                        .withName("p")
                                        .endMetadata()
                                        .build())
                                .build())
                .once();

        Snapshot snapshot = Snapshot.of(client);

        assertThat(snapshot.nodes())
                .extracting(node -> node.getMetadata().getName())
                .containsExactly("a", "b");
        assertThat(snapshot.pods())
                .extracting(pod -> pod.getMetadata().getName())
                .containsExactly("p");
        assertThat(server.getRequestCount()).isEqualTo(3);
        for (int i = 0; i < 3; i++) {
            assertThat(server.takeRequest().getMethod()).isEqualTo("GET");
        }
    }

    @Test
    void aDeniedRequestIsReportedWithAdvice() {
        server.expect()
                .get()
                .withPath("/api/v1/nodes?limit=500")
                .andReturn(403, "{}")
                .once();

        assertThatThrownBy(() -> Snapshot.of(client))
                .isInstanceOf(TraceException.class)
                .hasMessageStartingWith("cannot list nodes and pods of http")
                .hasMessageContaining("--context");
    }
}
