package io.aliquot.scheduler.extender;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.FormatException;
import io.aliquot.scheduler.placement.HostLoad;
import io.aliquot.scheduler.placement.PodAsk;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class AsksTest {
    private final Asks asks = new Asks();

    @Test
    void podsOfOneTemplateShareWhatTheyAskFor() {
        PodAsk first = asks.of(World.pod("a", World.mebibytes(3000)));
        assertThat(asks.of(World.pod("b", World.mebibytes(3000)))).isSameAs(first);
        assertThat(asks.of(annotated("c", "example.com/revision", "7"))).isSameAs(first);
    }

    @Test
    void whoAsksForSomethingElseGetsSomethingElse() {
        PodAsk first = asks.of(World.pod("a", World.mebibytes(3000)));
        assertThat(asks.of(World.pod("b", World.mebibytes(3001)))).isNotEqualTo(first);
        assertThat(asks.of(annotated("c", "aliquot.io/priority", "1")).priority())
                .isEqualTo(1);
        assertThat(asks.of(annotated("d", "aliquot.io/priority", "2")).priority())
                .isEqualTo(2);
        assertThat(asks.of(edited("e", "\"cpu\": \"1\"}", "\"cpu\": \"1\"}, \"requests\": {\"cpu\": \"500m\"}"))
                        .requests())
                .isEqualTo(new HostLoad(500, 0));
    }

    @Test
    void aSidecarIsNoInitContainer() {
        String init = "\"spec\": {\"initContainers\": [{\"name\": \"init\", %s\"resources\": {\"limits\": {"
                + World.mebibytes(1000) + "}}}], ";
        PodAsk ends = asks.of(edited("a", "\"spec\": {", init.formatted("")));
        PodAsk runsOn = asks.of(edited("b", "\"spec\": {", init.formatted("\"restartPolicy\": \"Always\", ")));
        assertThat(ends.containers()).hasSize(2);
        assertThat(runsOn.containers()).hasSize(2).isNotEqualTo(ends.containers());
    }

    @Test
    void whatMakesNoSenseIsToldEachTime() {
        for (String name : List.of("a", "b")) {
            assertThatThrownBy(() -> asks.of(annotated(name, "aliquot.io/priority", "high")))
                    .isInstanceOf(FormatException.class)
                    .hasMessageContaining("aliquot.io/priority");
            assertThatThrownBy(() -> asks.of(World.pod(name, "\"nvidia.com/gpumem\": \"3Gi\"")))
                    .isInstanceOf(FormatException.class)
                    .hasMessageContaining("write 3072 instead of 3Gi");
        }
    }

    @Test
    void aPodWithAHundredContainersIsReadAndNotRemembered() {
        String containers = IntStream.range(0, 100)
                .mapToObj(n -> "{\"name\": \"c" + n + "\", \"resources\": {\"limits\": {" + World.mebibytes(1) + "}}}")
                .collect(Collectors.joining(", "));
        Wire.Pod pod = edited("a", "\"containers\": [", "\"containers\": [" + containers + ", ");
        PodAsk ask = asks.of(pod);
        assertThat(ask.containers()).hasSize(101);
        assertThat(asks.of(pod)).isEqualTo(ask).isNotSameAs(ask);
    }

    private static Wire.Pod annotated(String name, String annotation, String value) {
        return World.pod(name, World.mebibytes(3000), ", \"annotations\": {\"" + annotation + "\": \"" + value + "\"}");
    }

    private static Wire.Pod edited(String name, String replaced, String by) {
        String json = World.podJson(name, World.mebibytes(3000), "").replace(replaced, by);
        return World.read(json);
    }
}
