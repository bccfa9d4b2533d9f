package io.aliquot.scheduler.admission;

import static io.aliquot.scheduler.admission.Pods.container;
import static io.aliquot.scheduler.admission.Pods.mutated;
import static io.aliquot.scheduler.admission.Pods.parse;
import static io.aliquot.scheduler.admission.Pods.requesting;
import static io.aliquot.scheduler.admission.Pods.spec;
import static org.assertj.core.api.Assertions.assertThat;

import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

class VoidAdmissionTest {
    private static final VoidAdmission ADMISSION = new VoidAdmission(Set.of(), "shared"::equals);
    private static final JsonNode VOID = parse(
                    "{\"env\": [{\"name\": \"NVIDIA_VISIBLE_DEVICES\", \"value\": \"void\"}]}")
            .get("env");

    /** As kubectl debug adds containers: after those that the pod has. */
    private static final VoidAdmission DEBUG = new VoidAdmission(Set.of("main", "earlier"), "shared"::equals);

    @Test
    void hidesTheGpusFromContainersThatDoNotSayWhatTheySee() {
        ObjectNode pod = requesting("{\"cpu\": \"1\"}");
        pod.withArray("/spec/initContainers").add(parse("{\"name\": \"fetch\"}"));

        ObjectNode mutated = mutated(ADMISSION, pod);

        assertThat(container(mutated, 0).get("env")).isEqualTo(VOID);
        assertThat(mutated.at("/spec/initContainers/0/env")).isEqualTo(VOID);
        assertThat(spec(mutated).get("schedulerName").stringValue()).isEqualTo("default-scheduler");
        assertThat(mutated(ADMISSION, mutated)).isEqualTo(mutated);
    }

    @Test
    void leavesAContainerAloneThatSetsTheVariableInItsSpec() {
        ObjectNode pod = requesting("{\"cpu\": \"1\"}");
        pod.withArray("/spec/containers/0/env")
                .addObject()
                .put("name", "NVIDIA_VISIBLE_DEVICES")
                .put("value", "all");

        assertThat(mutated(ADMISSION, pod)).isEqualTo(pod);
    }

    @Test
    void leavesAContainerWithClaimsAloneUnlessItsPodGetsGpusFromAliquot() {
        ObjectNode pod = requesting("{\"cpu\": \"1\"}");
        pod.withObject("/spec/containers/0/resources")
                .putArray("claims")
                .addObject()
                .put("name", "gpu");
        pod.withArray("/spec/containers").add(parse("{\"name\": \"other\"}"));

        ObjectNode mutated = mutated(ADMISSION, pod);

        assertThat(container(mutated, 0)).isEqualTo(container(pod, 0));
        assertThat(container(mutated, 1).get("env")).isEqualTo(VOID);
        pod.withArray("/spec/containers")
                .add(parse("{\"name\": \"share\", \"resources\": {\"limits\": {\"aliquot.io/vgpu\": \"1\"}}}"));
        assertThat(container(mutated(ADMISSION, pod), 0).get("env")).isEqualTo(VOID);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{\"nvidia.com/gpu\": \"1\"}",
                "{\"nvidia.com/gpu.shared\": \"1\"}",
                "{\"nvidia.com/gpumem\": \"3Gi\"}",
                "{\"nvidia.com/mig-1g.10gb\": \"1\"}",
                "{\"aliyun.com/gpu-mem\": \"3\"}"
            })
    void leavesAPodAloneThatGetsAGpuFromAnotherDevicePlugin(String limits) {
        ObjectNode pod = requesting(limits);
        pod.withArray("/spec/containers").add(parse("{\"name\": \"sidecar\"}"));

        assertThat(mutated(ADMISSION, pod)).isEqualTo(pod);
    }

    @Test
    void anAmountOfZeroIsNoRequest() {
        ObjectNode none = requesting("{\"nvidia.com/mig-1g.10gb\": \"0\"}");

        assertThat(container(mutated(ADMISSION, none), 0).get("env")).isEqualTo(VOID);
    }

    @Test
    void leavesAPodAloneThatNamesANodeWhoseGpusAliquotDoesNotShare() {
        ObjectNode other = requesting("{\"cpu\": \"1\"}");
        spec(other).put("nodeName", "other");
        ObjectNode shared = requesting("{\"cpu\": \"1\"}");
        spec(shared).put("nodeName", "shared");

        assertThat(mutated(ADMISSION, other)).isEqualTo(other);
        assertThat(container(mutated(ADMISSION, shared), 0).get("env")).isEqualTo(VOID);
    }

    @Test
    void leavesAPodOfADaemonSetAloneOnANodeWhoseGpusAliquotDoesNotShare() {
        assertThat(mutated(ADMISSION, daemonPod("other"))).isEqualTo(daemonPod("other"));
        assertThat(container(mutated(ADMISSION, daemonPod("shared")), 0).get("env"))
                .isEqualTo(VOID);
    }

    @Test
    void anAlternativeThatNamesNoNodeMayRunAnywhere() {
        ObjectNode pod = daemonPod("other");
        pod.withArray(AFFINITY).add(parse("{\"matchExpressions\": [{\"key\": \"gpu\", \"operator\": \"Exists\"}]}"));

        assertThat(container(mutated(ADMISSION, pod), 0).get("env")).isEqualTo(VOID);
    }

    private static final String AFFINITY =
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

    /** As the DaemonSet controller creates it. */
    private static ObjectNode daemonPod(String node) {
        ObjectNode pod = requesting("{\"cpu\": \"1\"}");
        pod.withArray(AFFINITY)
                .add(parse(
                        "{\"matchFields\": [{\"key\": \"metadata.name\", \"operator\": \"In\", \"values\": [\"%s\"]}]}"
                                .formatted(node)));
        return pod;
    }

    @Test
    void hidesTheGpusFromAnAddedContainerAndLeavesExistingOnesUnchanged() {
        ObjectNode pod = requesting("{\"cpu\": \"1\"}");
        pod.withArray("/spec/ephemeralContainers").add(parse("{\"name\": \"earlier\"}"));
        ObjectNode added = parse("{\"name\": \"debug\"}");
        pod.withArray("/spec/ephemeralContainers").add(added);

        ObjectNode mutated = mutated(DEBUG, pod);

        added.set("env", VOID);
        assertThat(mutated).isEqualTo(pod);
    }

    @Test
    void hidesTheGpusFromAContainerAddedToAGpuPodWhateverItsAuthorWrote() {
        ObjectNode pod = requesting("{\"aliquot.io/vgpu\": \"1\"}");
        spec(pod).put("nodeName", "shared");
        pod.withArray("/spec/ephemeralContainers")
                .add(
                        parse(
                                "{\"name\": \"debug\", \"env\": [{\"name\": \"NVIDIA_VISIBLE_DEVICES\", \"value\": \"all\"}]}"));

        ObjectNode mutated = mutated(DEBUG, pod);

        assertThat(mutated.at("/spec/ephemeralContainers/0/env")).isEqualTo(VOID);
        assertThat(container(mutated, 0)).isEqualTo(container(pod, 0));
    }
}
