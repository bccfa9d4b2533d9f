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

/** Pods that admission refuses, with a message that says what to write instead. */
@ExtendWith(LabExtension.class)
class AdmissionRefusalsIT {
    @ParameterizedTest(name = "{0}: {1}")
    @CsvSource({
        "nvidia.com/gpumem, 3Gi, write 3072 instead of 3Gi",
        "nvidia.com/gpumem, 1500m, a whole number",
        "nvidia.com/gpumem, 99999999999, a whole number",
        "nvidia.com/gpumem, -1, ''",
        "nvidia.com/gpumem-percentage, 101, from 1 to 100",
        "nvidia.com/gpucores, 101, from 0 to 100",
        "aliquot.io/vgpu, -1, ''",
        "aliyun.com/gpu-mem, 3Gi, instead of 3Gi",
    })
    void invalidAmountsAreRefused(String resource, String amount, String advice, Lab lab, TestNamespace namespace) {
        KubernetesClientException refusal =
                expectRefusal(namespace, Pods.withLimits(lab, "bad", Map.of(resource, amount)));

        assertThat(refusal.getMessage()).contains(resource).contains(advice);
        assertThat(refusal.getCode()).isIn(403, 422);
    }

    @Test
    void memoryAndPercentageTogetherAreRefused(Lab lab, TestNamespace namespace) {
        Pod both = Pods.withLimits(lab, "both", Map.of(Resources.MEMORY, "3000", Resources.MEMORY_PERCENTAGE, "10"));

        assertThat(expectRefusal(namespace, both))
                .hasMessageContaining("not both")
                .matches(e -> code(e) == 403);
    }

    @Test
    void aPresetNodeNameIsRefusedWithTheNodeSelectorToUse(Lab lab, TestNamespace namespace) {
        Pod preset = Pods.withGpuMemory(lab, "preset", 3000)
                .edit()
                .editSpec()
                .withNodeName(lab.nodes().get(0))
                .endSpec()
                .build();

        assertThat(expectRefusal(namespace, preset))
                .hasMessageContaining(
                        "nodeSelector: {kubernetes.io/hostname: " + lab.nodes().get(0) + "}");
    }

    @Test
    void aPrivilegedContainerThatRequestsAShareIsRefused(Lab lab, TestNamespace namespace) {
        Pod privileged = Pods.withGpuMemory(lab, "privileged", 3000)
                .edit()
                .editSpec()
                .editFirstContainer()
                .withNewSecurityContext()
                .withPrivileged(true)
                .endSecurityContext()
                .endContainer()
                .endSpec()
                .build();

        assertThat(expectRefusal(namespace, privileged)).hasMessageContaining("remove securityContext.privileged");
    }

    @Test
    void anUnknownPolicyIsRefusedWithTheAllowedOnes(Lab lab, TestNamespace namespace) {
        Pod unknown = Pods.withAnnotations(
                Pods.withGpuMemory(lab, "unknown", 3000), Map.of(Annotations.GPU_PLACEMENT, "tightest"));

        assertThat(expectRefusal(namespace, unknown))
                .hasMessageContaining("binpack")
                .hasMessageContaining("spread");
    }

    @Test
    void anUnsupportedAnnotationValueIsRefused(Lab lab, TestNamespace namespace) {
        Pod unsupported = Pods.withAnnotations(
                Pods.withGpuMemory(lab, "unsupported", 3000), Map.of("nvidia.com/vgpu-mode", "mig"));

        assertThat(expectRefusal(namespace, unsupported))
                .hasMessageContaining("is not supported yet; allowed: hami-core");
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
    void aMountOverFilesThatEnforceTheShareIsRefused(String path, Lab lab, TestNamespace namespace) {
        Pod mounts = mounting(Pods.withGpuMemory(lab, "mounts", 3000), path);

        assertThat(expectRefusal(namespace, mounts))
                .matches(e -> code(e) == 403)
                .hasMessageContaining("mountPath");
    }

    @Test
    void aPodThatBypassesTheWebhookIsRefusedByAnAdmissionPolicy(Lab lab, TestNamespace namespace) {
        lab.kubectl("label", "namespace", namespace.name(), Labels.WEBHOOK + "=" + Labels.WEBHOOK_IGNORE)
                .expectSuccess();
        // The API server sees the label a moment later; until then it calls the webhook, which admits the pod.
        Pod bypassing = Pods.withLimits(lab, "bypassing", Map.of(Resources.VGPU, "1"));
        TestNamespace.awaitTrue("a refusal", TestNamespace.EVENTUALLY, () -> {
            try {
                namespace.create(bypassing);
                namespace.delete("bypassing");
                return false;
            } catch (KubernetesClientException e) {
                assertThat(e.getCode()).isEqualTo(403);
                assertThat(e.getMessage())
                        .contains("ValidatingAdmissionPolicy")
                        .contains("the namespace " + namespace.name() + " has the label aliquot.io/webhook=ignore");
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

    private static KubernetesClientException expectRefusal(TestNamespace namespace, Pod pod) {
        return expectRefusal(() -> namespace.create(pod));
    }

    private static KubernetesClientException expectRefusal(ThrowingCallable request) {
        var refusal = catchThrowableOfType(KubernetesClientException.class, request);
        assertThat(refusal).as("a refusal").isNotNull();
        return refusal;
    }

    private static int code(KubernetesClientException e) {
        return e.getCode();
    }
}
