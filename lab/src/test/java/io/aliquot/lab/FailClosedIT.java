package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.fabric8.kubernetes.client.KubernetesClient;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * A malformed limit file denies access to the GPU; it never lifts the limit. The shim's tests have more such files,
 * {@code api/golden/vgpu/invalid} among them.
 */
@ExtendWith(LabExtension.class)
class FailClosedIT {
    private static final String ALLOCATE = "vgpu-sample alloc 1 2>&1";

    @Test
    void aMalformedLimitFileStopsTheProgramWithAOneLineMessage(Lab lab, TestNamespace namespace) {
        namespace.run(Pods.withGpuMemory(lab, "limited", 3000));
        String valid = namespace.annotation("limited", Annotations.vgpu(Pods.MAIN));
        assertThat(namespace.exec("limited", "bash", "-c", ALLOCATE).expectSuccess())
                .contains("CUDA_SUCCESS");

        try (KubernetesClient scheduler =
                lab.impersonate("system:serviceaccount:" + Lab.NAMESPACE + ":aliquot-scheduler", Map.of())) {
            rewrite(lab, scheduler, namespace, valid.substring(0, valid.indexOf("memory=") + 9));

            String output = namespace.exec("limited", "bash", "-c", ALLOCATE).out();

            assertThat(output).doesNotContain("CUDA_SUCCESS");
            assertThat(output.lines().filter(line -> line.contains("/etc/aliquot/vgpu")))
                    .as(output)
                    .hasSize(1);
            assertThat(namespace.exec("limited", "cat", "/etc/hostname").expectSuccess())
                    .as("a program that uses no GPU still works")
                    .isEqualTo("limited\n");
            rewrite(lab, scheduler, namespace, valid);
        }
        assertThat(namespace.exec("limited", "bash", "-c", ALLOCATE).expectSuccess())
                .contains("CUDA_SUCCESS");
    }

    /** Rewrites the allocation, as the leader does for a resize. */
    private static void rewrite(Lab lab, KubernetesClient scheduler, TestNamespace namespace, String limits) {
        scheduler
                .pods()
                .inNamespace(namespace.name())
                .withName("limited")
                .edit(pod -> Pods.withAnnotations(
                        pod.edit()
                                .editMetadata()
                                .addToLabels(Labels.RESIZED, Labels.RESIZED_TRUE)
                                .endMetadata()
                                .build(),
                        Map.of(
                                Annotations.vgpu(Pods.MAIN),
                                limits,
                                Annotations.RESIZE_FENCE,
                                new SchedulerReplicas(lab).fence().print())));
        awaitTrue(
                "the limit file has the new content",
                TestNamespace.VOLUME_UPDATED,
                () -> namespace
                        .exec("limited", "cat", "/etc/aliquot/vgpu")
                        .out()
                        .equals(limits));
    }
}
