package io.aliquot.scheduler.extender;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.pods.Priority;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class GpuRequestCacheTest {
    private final GpuRequestCache asks = new GpuRequestCache();

    @Test
    void podsOfOneTemplateShareOneRequestObject() {
        PodGpuRequest first = asks.of(ExtenderFixture.pod("a", ExtenderFixture.mebibytes(3000)));
        assertThat(asks.of(ExtenderFixture.pod("b", ExtenderFixture.mebibytes(3000))))
                .isSameAs(first);
        assertThat(asks.of(annotated("c", "example.com/revision", "7"))).isSameAs(first);
    }

    @Test
    void differentPodsHaveDifferentRequests() {
        PodGpuRequest first = asks.of(ExtenderFixture.pod("a", ExtenderFixture.mebibytes(3000)));
        assertThat(asks.of(ExtenderFixture.pod("b", ExtenderFixture.mebibytes(3001))))
                .isNotEqualTo(first);
        assertThat(asks.of(annotated("c", "aliquot.io/priority", "low")).priority())
                .isEqualTo(Priority.LOW);
        assertThat(asks.of(annotated("d", "aliquot.io/priority", "high")).priority())
                .isEqualTo(Priority.HIGH);
        assertThat(asks.of(edited("e", "\"cpu\": \"1\"}", "\"cpu\": \"1\"}, \"requests\": {\"cpu\": \"500m\"}"))
                        .hostRequests())
                .isEqualTo(new HostResources(500, 0));
    }

    @Test
    void aSidecarIsDistinguishedFromAnInitContainer() {
        String init = "\"spec\": {\"initContainers\": [{\"name\": \"init\", %s\"resources\": {\"limits\": {"
                + ExtenderFixture.mebibytes(1000) + "}}}], ";
        PodGpuRequest ends = asks.of(edited("a", "\"spec\": {", init.formatted("")));
        PodGpuRequest runsOn = asks.of(edited("b", "\"spec\": {", init.formatted("\"restartPolicy\": \"Always\", ")));
        assertThat(ends.containers()).hasSize(2);
        assertThat(runsOn.containers()).hasSize(2).isNotEqualTo(ends.containers());
    }

    /** The API server accepts the Binding of such a pod, and refuses every status of the pod from then on. */
    @Test
    void aPodWhoseAnnotationsLeaveNoSpaceForThoseOfItsBindingIsRefused() {
        assertThat(asks.of(annotated("a", "example.com/text", "x".repeat(260_000))))
                .isNotNull();
        for (String tooMuch : List.of("x".repeat(262_144 - 350), "\u20ac".repeat(87_300))) {
            assertThatThrownBy(() -> asks.of(annotated("b", "example.com/text", tooMuch)))
                    .isInstanceOf(FormatException.class)
                    .hasMessageContainingAll("Kubernetes allows 262144 together", "ConfigMap");
        }
    }

    @Test
    void anInvalidRequestFailsEachTime() {
        for (String name : List.of("a", "b")) {
            assertThatThrownBy(() -> asks.of(annotated(name, "aliquot.io/priority", "urgent")))
                    .isInstanceOf(FormatException.class)
                    .hasMessageContaining("aliquot.io/priority");
            assertThatThrownBy(() -> asks.of(ExtenderFixture.pod(name, "\"nvidia.com/gpumem\": \"3Gi\"")))
                    .isInstanceOf(FormatException.class)
                    .hasMessageContaining("write 3072 instead of 3Gi");
        }
    }

    @Test
    void aPodWithAHundredContainersIsReadAndNotCached() {
        String containers = IntStream.range(0, 100)
                .mapToObj(n -> "{\"name\": \"c" + n + "\", \"resources\": {\"limits\": {" + ExtenderFixture.mebibytes(1)
                        + "}}}")
                .collect(Collectors.joining(", "));
        Wire.Pod pod = edited("a", "\"containers\": [", "\"containers\": [" + containers + ", ");
        PodGpuRequest ask = asks.of(pod);
        assertThat(ask.containers()).hasSize(101);
        assertThat(asks.of(pod)).isEqualTo(ask).isNotSameAs(ask);
    }

    private static Wire.Pod annotated(String name, String annotation, String value) {
        return ExtenderFixture.pod(
                name,
                ExtenderFixture.mebibytes(3000),
                ", \"annotations\": {\"" + annotation + "\": \"" + value + "\"}");
    }

    private static Wire.Pod edited(String name, String replaced, String by) {
        String json = ExtenderFixture.podJson(name, ExtenderFixture.mebibytes(3000), "")
                .replace(replaced, by);
        return ExtenderFixture.read(json);
    }
}
