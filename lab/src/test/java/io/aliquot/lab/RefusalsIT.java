package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowableOfType;

import io.aliquot.api.Annotations;
import io.aliquot.api.Labels;
import io.aliquot.api.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.VolumeBuilder;
import io.fabric8.kubernetes.api.model.VolumeMountBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.util.Map;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Pods that are refused when they are created, with a sentence that says what to write instead. */
@ExtendWith(LabExtension.class)
class RefusalsIT {
    @ParameterizedTest(name = "{0}: {1}")
    @CsvSource({
        "nvidia.com/gpumem, 3Gi, write 3072 instead of 3Gi",
        "nvidia.com/gpumem, 1500m, a whole number",
        "nvidia.com/gpumem, 0, a whole number",
        "nvidia.com/gpumem, 99999999999, a whole number",
        "nvidia.com/gpumem, -1, ''",
        "nvidia.com/gpumem-percentage, 101, from 1 to 100",
        "nvidia.com/gpucores, 101, from 0 to 100",
        "nvidia.com/gpu, -1, ''",
        "nvidia.com/priority, 1, or request a GPU",
        "aliyun.com/gpu-mem, 3Gi, instead of 3Gi",
    })
    void amountsThatMakeNoSenseAreRefused(String resource, String amount, String advice, Lab lab, Space space) {
        KubernetesClientException refusal = refused(space, Pods.asking(lab, "bad", Map.of(resource, amount)));

        assertThat(refusal.getMessage()).contains(resource).contains(advice);
        assertThat(refusal.getCode()).isIn(403, 422);
    }

    @Test
    void memoryAndPercentageTogetherAreRefused(Lab lab, Space space) {
        Pod both = Pods.asking(lab, "both", Map.of(Resources.MEMORY, "3000", Resources.MEMORY_PERCENTAGE, "10"));

        assertThat(refused(space, both)).hasMessageContaining("not both").matches(e -> code(e) == 403);
    }

    @Test
    void aPresetNodeNameIsRefusedWithTheWayToChooseANode(Lab lab, Space space) {
        Pod preset = Pods.memory(lab, "preset", 3000)
                .edit()
                .editSpec()
                .withNodeName(lab.nodes().get(0))
                .endSpec()
                .build();

        assertThat(refused(space, preset))
                .hasMessageContaining(
                        "nodeSelector: {kubernetes.io/hostname: " + lab.nodes().get(0) + "}");
    }

    @Test
    void aPrivilegedContainerThatWantsAShareIsRefused(Lab lab, Space space) {
        Pod privileged = Pods.memory(lab, "privileged", 3000)
                .edit()
                .editSpec()
                .editFirstContainer()
                .withNewSecurityContext()
                .withPrivileged(true)
                .endSecurityContext()
                .endContainer()
                .endSpec()
                .build();

        assertThat(refused(space, privileged)).hasMessageContaining("remove securityContext.privileged");
    }

    @Test
    void anUnknownPolicyIsRefusedWithTheAllowedOnes(Lab lab, Space space) {
        Pod unknown = Pods.annotated(Pods.memory(lab, "unknown", 3000), Map.of(Annotations.GPU_PLACEMENT, "tightest"));

        assertThat(refused(space, unknown)).hasMessageContaining("binpack").hasMessageContaining("spread");
    }

    @Test
    void anAnnotationThatIsNotSupportedYetIsRefused(Lab lab, Space space) {
        Pod early = Pods.annotated(Pods.memory(lab, "early", 3000), Map.of("nvidia.com/vgpu-mode", "mig"));

        assertThat(refused(space, early)).hasMessageContaining("is not supported yet; allowed: hami-core");
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "/etc/ld.so.preload",
                "/etc//ld.so.preload",
                "/etc/./ld.so.preload",
                "/etc/x/../ld.so.preload",
                "/etc",
                "/etc/aliquot",
                "/etc/aliquot/vgpu",
                "/usr/local/aliquot/region",
                "/usr/local"
            })
    void aMountOverWhatEnforcesTheShareIsRefused(String path, Lab lab, Space space) {
        Pod mounts = mounting(Pods.memory(lab, "mounts", 3000), path);

        assertThat(refused(space, mounts)).matches(e -> code(e) == 403).hasMessageContaining("mountPath");
    }

    @Test
    void aPodThatAvoidsTheWebhookIsRefusedByPolicy(Lab lab, Space space) {
        lab.kubectl("label", "namespace", space.name(), Labels.WEBHOOK + "=" + Labels.WEBHOOK_IGNORE)
                .expectSuccess();
        // The API server hears of the label a moment later; until then the webhook sees the pod, and lets it in.
        Pod dodger = Pods.asking(lab, "dodger", Map.of(Resources.GPU, "1"));
        Space.awaitTrue("a refusal", Space.EVENTUALLY, () -> {
            try {
                space.create(dodger);
                space.delete("dodger");
                return false;
            } catch (KubernetesClientException e) {
                assertThat(e.getCode()).isEqualTo(403);
                assertThat(e.getMessage()).contains("ValidatingAdmissionPolicy");
                return true;
            }
        });
    }

    private static Pod mounting(Pod pod, String path) {
        return pod.edit()
                .editSpec()
                .addToVolumes(new VolumeBuilder()
                        .withName("mine")
                        .withNewEmptyDir()
                        .endEmptyDir()
                        .build())
                .editFirstContainer()
                .addToVolumeMounts(new VolumeMountBuilder()
                        .withName("mine")
                        .withMountPath(path)
                        .build())
                .endContainer()
                .endSpec()
                .build();
    }

    private static KubernetesClientException refused(Space space, Pod pod) {
        return refused(() -> space.create(pod));
    }

    private static KubernetesClientException refused(ThrowingCallable request) {
        var refusal = catchThrowableOfType(KubernetesClientException.class, request);
        assertThat(refusal).as("a refusal").isNotNull();
        return refusal;
    }

    private static int code(KubernetesClientException e) {
        return e.getCode();
    }
}
