package io.aliquot.scheduler.apiserver.reader;

import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.LimitRange;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.util.List;
import org.junit.jupiter.api.Test;

/** With the defaults that the API server adds to a LimitRange; AdmissionPoliciesIT has them of a real one. */
class LimitRangeReaderTest {
    private static final KubernetesSerialization YAML = new KubernetesSerialization();

    @Test
    void whatMakesKubernetesRefusePlainContainersIsNamedWithWhatToDo() {
        assertThat(
                        problems(
                                "{type: Container, min: {nvidia.com/gpumem: 1k, cpu: 1}, defaultRequest: {nvidia.com/gpumem: 1k}}"))
                .containsExactly("with min: {nvidia.com/gpumem: 1k} Kubernetes refuses all that does not request"
                        + " nvidia.com/gpumem, also what needs no GPU; remove it: no default avoids that");
        assertThat(problems("{type: Pod, maxLimitRequestRatio: {mig.aliquot.io/1g.10gb: 1}}"))
                .singleElement()
                .asString()
                .startsWith("with maxLimitRequestRatio: {mig.aliquot.io/1g.10gb: 1} Kubernetes refuses all");
        String pods = "{type: Pod, max: {nvidia.com/gpumem: 8k}}";
        assertThat(problems(pods))
                .containsExactly(
                        "with max: {nvidia.com/gpumem: 8k} for the type Pod Kubernetes refuses every pod that does"
                                + " not write nvidia.com/gpumem, also those that need no GPU; add an entry {type: Container,"
                                + " default: {nvidia.com/gpumem: 0}}");
        assertThat(problems(pods + ", {type: Container, default: {nvidia.com/gpumem: 0}}"))
                .isEmpty();
    }

    @Test
    void aMaximumThatIsTheDefaultIsNamedWithTheDefaultToAdd() {
        assertThat(problems("{type: Container, max: {nvidia.com/gpumem: 8k, aliquot.io/vgpu: 2, cpu: 4},"
                        + " default: {nvidia.com/gpumem: 8k, aliquot.io/vgpu: 2, cpu: 4}}"))
                .containsExactly(
                        "Kubernetes makes max: {aliquot.io/vgpu: 2} the default: a container that requests GPUs and does not"
                                + " write aliquot.io/vgpu gets 2; if it should not, add default: {aliquot.io/vgpu: 1}",
                        "Kubernetes makes max: {nvidia.com/gpumem: 8k} the default: a container that requests GPUs and does"
                                + " not write nvidia.com/gpumem gets 8k; if it should not, add default:"
                                + " {nvidia.com/gpumem: 0}");
    }

    @Test
    void whatSaysAllThatItDoesHasNoProblem() {
        assertThat(problems("{type: Container, max: {nvidia.com/gpumem: 8k}, default: {nvidia.com/gpumem: 2k}},"
                        + " {type: Pod, min: {cpu: 1}}, {type: PersistentVolumeClaim, min: {storage: 1Gi}}"))
                .isEmpty();
        // admission sets the default of an instance to 0, and a request without its limit
        assertThat(problems("{type: Container, max: {mig.aliquot.io/1g.10gb: 1}, default: {mig.aliquot.io/1g.10gb: 1},"
                        + " defaultRequest: {nvidia.com/gpucores: 10}}"))
                .isEmpty();
    }

    private static List<String> problems(String items) {
        return LimitRangeReader.problems(
                YAML.unmarshal("metadata: {name: gpus}\nspec: {limits: [" + items + "]}", LimitRange.class));
    }
}
