package io.aliquot.scheduler.admission;

import static io.aliquot.scheduler.admission.Pods.container;
import static io.aliquot.scheduler.admission.Pods.mutated;
import static io.aliquot.scheduler.admission.Pods.parse;
import static io.aliquot.scheduler.admission.Pods.requesting;
import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class VoidAdmissionTest {
    private static final VoidAdmission ADMISSION = new VoidAdmission(Set.of());

    @Test
    void hidesTheGpusFromEveryContainerWhateverItsAuthorWrote() {
        ObjectNode pod = requesting("{\"cpu\": \"1\"}");
        pod.withArray("/spec/containers/0/env")
                .addObject()
                .put("name", "NVIDIA_VISIBLE_DEVICES")
                .put("value", "all");
        pod.withArray("/spec/initContainers").add(parse("{\"name\": \"fetch\"}"));

        ObjectNode mutated = mutated(ADMISSION, pod);

        String expected = "{\"env\": [{\"name\": \"NVIDIA_VISIBLE_DEVICES\", \"value\": \"void\"}]}";
        assertThat(container(mutated, 0).get("env")).isEqualTo(parse(expected).get("env"));
        assertThat(mutated.at("/spec/initContainers/0/env"))
                .isEqualTo(parse(expected).get("env"));
        assertThat(mutated.at("/spec/schedulerName").textValue()).isEqualTo("default-scheduler");
        assertThat(mutated(ADMISSION, mutated)).isEqualTo(mutated);
    }

    @Test
    void hidesTheGpusFromAnAddedContainerAndLeavesExistingOnesUnchanged() {
        ObjectNode pod = requesting("{\"cpu\": \"1\"}");
        pod.withArray("/spec/ephemeralContainers").add(parse("{\"name\": \"earlier\"}"));
        ObjectNode added = parse("{\"name\": \"debug\"}");
        pod.withArray("/spec/ephemeralContainers").add(added);

        ObjectNode mutated = mutated(new VoidAdmission(Set.of("main", "earlier")), pod);

        added.withArray("/env")
                .addObject()
                .put("name", "NVIDIA_VISIBLE_DEVICES")
                .put("value", "void");
        assertThat(mutated).isEqualTo(pod);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{\"nvidia.com/gpu\": \"1\"}",
                "{\"nvidia.com/gpumem\": \"3Gi\"}",
                "{\"nvidia.com/priority\": \"1\"}",
                "{\"aliyun.com/gpu-mem\": \"3\"}",
                "{\"nvidia.com/gpumem\": \"1\", \"nvidia.com/gpumem-percentage\": \"1\"}"
            })
    void leavesAContainerThatRequestsGpusToTheOtherWebhook(String limits) {
        ObjectNode pod = requesting(limits);

        assertThat(mutated(ADMISSION, pod)).isEqualTo(pod);
    }

    @Test
    void leavesTheDeviceOfAnotherDevicePluginVisibleUnlessTheAmountIsZero() {
        ObjectNode mig = requesting("{\"nvidia.com/mig-1g.10gb\": \"1\"}");
        ObjectNode none = requesting("{\"nvidia.com/mig-1g.10gb\": \"0\"}");

        assertThat(mutated(ADMISSION, mig)).isEqualTo(mig);
        assertThat(container(mutated(ADMISSION, none), 0).at("/env/0/value").textValue())
                .isEqualTo("void");
    }
}
