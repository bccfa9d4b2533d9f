package io.aliquot.scheduler.placement;

import static io.aliquot.scheduler.placement.ContainerKind.APP;
import static io.aliquot.scheduler.placement.ContainerKind.INIT;
import static io.aliquot.scheduler.placement.ContainerKind.SIDECAR;
import static org.assertj.core.api.Assertions.assertThat;

import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

class PodHostRequestsTest {
    private final PodHostRequests requests = new PodHostRequests();

    @Test
    void containersThatRunTogetherAreAdded() {
        requests.add(SIDECAR, new HostResources(1, 100));
        requests.add(APP, new HostResources(2, 10));
        requests.add(APP, new HostResources(3, 20));
        assertThat(requests.total()).isEqualTo(new HostResources(6, 130));
    }

    @Test
    void anInitContainerCountsWhereItRequestsMoreThanTheContainersAfterIt() {
        requests.add(INIT, new HostResources(10, 5));
        requests.add(INIT, new HostResources(8, 6));
        requests.add(APP, new HostResources(2, 10));
        assertThat(requests.total()).isEqualTo(new HostResources(10, 10));
    }

    @Test
    void anInitContainerRunsBesideTheSidecarsThatStartedBeforeIt() {
        requests.add(SIDECAR, new HostResources(1, 1));
        requests.add(INIT, new HostResources(10, 10));
        requests.add(SIDECAR, new HostResources(4, 4));
        requests.add(APP, new HostResources(2, 2));
        assertThat(requests.total()).isEqualTo(new HostResources(11, 11));
    }

    @Test
    void podLevelRequestsReplaceThoseOfTheContainersAndOverheadIsAdded() {
        requests.add(APP, new HostResources(2, 2));
        requests.podLevel(Set.of("cpu"), new HostResources(5, 9));
        requests.overhead(new HostResources(100, 1000));
        assertThat(requests.total()).isEqualTo(new HostResources(105, 1002));
        requests.podLevel(Set.of("cpu", "memory"), new HostResources(5, 7));
        assertThat(requests.total()).isEqualTo(new HostResources(105, 1007));
    }

    @Test
    void aPodLevelRequestOfNothingCounts() {
        requests.add(APP, new HostResources(2, 2));
        requests.podLevel(Set.of("cpu", "memory"), HostResources.NONE);
        assertThat(requests.total()).isEqualTo(HostResources.NONE);
    }

    @Test
    void hostResourcesAreReadFromQuantities() {
        assertThat(HostResources.parse(Map.of("cpu", "1500m", "memory", "2Gi", "pods", "110")))
                .isEqualTo(new HostResources(1500, 2L << 30));
        assertThat(HostResources.parse(Map.of())).isEqualTo(HostResources.NONE);
        assertThat(new HostResources(5, 50).minus(new HostResources(2, 60))).isEqualTo(new HostResources(3, -10));
    }
}
