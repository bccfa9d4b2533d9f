package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fabric8.kubernetes.api.model.ListMeta;
import io.fabric8.kubernetes.api.model.ListMetaBuilder;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.NodeList;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.PodList;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.server.mock.EnableKubernetesMockClient;
import io.fabric8.kubernetes.client.server.mock.KubernetesMockServer;
import java.util.List;
import org.junit.jupiter.api.Test;

@EnableKubernetesMockClient
@SuppressWarnings("NullAway.Init")
class SnapshotListTest {
    private KubernetesMockServer server;
    private KubernetesClient client;

    @Test
    void nodesAndPodsAreListedPageByPageAndNothingElseIsRequested() throws InterruptedException {
        Node a = new NodeBuilder().withNewMetadata().withName("a").endMetadata().build();
        Node b = new NodeBuilder().withNewMetadata().withName("b").endMetadata().build();
        Pod p = new PodBuilder().withNewMetadata().withName("p").endMetadata().build();
        ListMeta first = new ListMetaBuilder().withContinue("more").build();
        answer("/api/v1/nodes?limit=500", new NodeList("v1", List.of(a), "NodeList", first));
        answer("/api/v1/nodes?continue=more&limit=500", new NodeList("v1", List.of(b), "NodeList", new ListMeta()));
        answer("/api/v1/pods?limit=500", new PodList("v1", List.of(p), "PodList", new ListMeta()));

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

    private void answer(String path, Object list) {
        server.expect().get().withPath(path).andReturn(200, list).once();
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
