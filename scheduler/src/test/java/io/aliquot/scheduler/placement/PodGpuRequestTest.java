package io.aliquot.scheduler.placement;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest.Mebibytes;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;

class PodGpuRequestTest {
    private static final Map<String, String> NUMA = Map.of(Annotations.NUMA, "required");
    private static final HostResources HOST = new HostResources(1, 1);
    private static final PodScopes SCOPES = new PodScopes("low", false);

    /** Nodes give equal requests one answer, which is cached. */
    @Test
    void requestsAreEqualIfNoNodeCanTellThemApart() {
        List<PodGpuRequest> different = new ArrayList<>();
        for (int i = 0; i < 2; i++) { // each created twice
            PodGpuRequest pod = Gpus.request(NUMA, "APP:main: gpumem=10");
            different.add(pod);
            different.add(Gpus.request("APP:main: gpumem=10"));
            different.add(Gpus.request(NUMA, "APP:main: gpumem=11"));
            different.add(PodGpuRequest.of(pod.containers(), NUMA, true));
            different.add(pod.withHostRequests(HOST));
            different.add(pod.withScopes(SCOPES));
            different.add(pod.withoutNumaRequirement());
        }
        int kinds = different.size() / 2;
        for (int i = 0; i < different.size(); i++) {
            for (int j = 0; j < different.size(); j++) {
                assertThat(different.get(i).equals(different.get(j)))
                        .as("%d %d", i, j)
                        .isEqualTo(i % kinds == j % kinds);
            }
        }
        assertThat(different.get(0)).hasSameHashCodeAs(different.get(kinds)).isNotEqualTo("a pod");
    }

    @Test
    void aRequestWithoutHostRequestsAndScopesIsThatOfThePodsGpusAlone() {
        PodGpuRequest pod = Gpus.request(NUMA, "APP:main: gpumem=10");
        PodGpuRequest full = pod.withHostRequests(HOST).withScopes(SCOPES);
        assertThat(full.hostRequests()).isEqualTo(HOST);
        assertThat(full.scopes()).isEqualTo(SCOPES);
        assertThat(full.withoutHostRequests()).isEqualTo(pod).isSameAs(full.withoutHostRequests());
    }

    @Test
    void aContainersRequestIsReadFromItsLimits() {
        Map<String, String> limits = Map.of("aliquot.io/vgpu", "2", "nvidia.com/gpumem", "10", "memory", "1Gi");
        var container =
                new ContainerGpuRequest("main", ContainerKind.APP, new GpuRequest(2, new Mebibytes(10), 0, false));
        assertThat(ContainerGpuRequest.parse("main", ContainerKind.APP, limits)).contains(container);
        assertThat(ContainerGpuRequest.parse("main", ContainerKind.APP, Map.of("memory", "1Gi")))
                .isEqualTo(Optional.empty());
        assertThatThrownBy(() -> ContainerGpuRequest.parse("main", ContainerKind.APP, Map.of("nvidia.com/gpu", "1")))
                .hasMessageStartingWith("container main: ");
        assertThat(ContainerGpuRequest.vgpus(List.of(container, container))).isEqualTo(4);
    }
}
