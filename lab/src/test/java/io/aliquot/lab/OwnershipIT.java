package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.LimitRangeBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodSpec;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.api.model.ResourceQuotaBuilder;
import io.fabric8.kubernetes.api.model.Toleration;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Which pods are Aliquot's, and that Aliquot leaves all others alone. */
@ExtendWith(LabExtension.class)
class OwnershipIT {
    private static final Map<String, String> ONE_GPU = Map.of(ForeignResources.NVIDIA_GPU, "1");

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aPodThatRequestsNvidiasGpusIsLeftAlone(boolean withNodeName, Lab lab, TestNamespace namespace) {
        Pod pod = Pods.withLimits(lab, "foreign", ONE_GPU);
        if (withNodeName) {
            pod.getSpec().setNodeName("elsewhere");
        }

        PodSpec stored = namespace.create(pod).getSpec();

        assertThat(stored.getSchedulerName()).isEqualTo("default-scheduler");
        assertThat(stored.getRuntimeClassName()).isNull();
        assertThat(stored.getAffinity()).isNull();
        assertThat(stored.getVolumes()).isEmpty();
        assertThat(stored.getContainers().get(0).getEnv()).isEmpty();
        assertThat(stored.getContainers().get(0).getResources().getLimits())
                .isEqualTo(pod.getSpec().getContainers().get(0).getResources().getLimits());
    }

    @Test
    void aLabeledPodIsTranslatedAndRuns(Lab lab, TestNamespace namespace) {
        Pod pod = Pods.labeled(Pods.withLimits(lab, "labeled", ONE_GPU));

        assertTranslated(namespace.run(pod));
    }

    @Test
    void aPodThatNamesAliquotsSchedulerIsTranslatedAndRuns(Lab lab, TestNamespace namespace) {
        Pod pod = Pods.withLimits(lab, "named", ONE_GPU);
        pod.getSpec().setSchedulerName("aliquot-scheduler");

        assertTranslated(namespace.run(pod));
    }

    static void assertTranslated(Pod pod) {
        assertThat(pod.getSpec().getContainers().get(0).getResources().getLimits())
                .containsEntry(Resources.VGPU, new Quantity("1"))
                .containsEntry(ForeignResources.NVIDIA_GPU, new Quantity("0"));
        assertThat(pod.getSpec().getTolerations())
                .contains(new Toleration(null, ForeignResources.NVIDIA_GPU, "Exists", null, null));
        assertThat(Allocations.of(pod, Pods.MAIN)).hasSize(1);
    }

    @Test
    void theDefaultOfALimitRangeDoesNotAddNvidiasGpuBack(Lab lab, TestNamespace namespace) {
        lab.client()
                .resource(new LimitRangeBuilder()
                        .withNewMetadata()
                        .withName("gpu-by-default")
                        .withNamespace(namespace.name())
                        .endMetadata()
                        .withNewSpec()
                        .addNewLimit()
                        .withType("Container")
                        .addToDefault(ForeignResources.NVIDIA_GPU, new Quantity("1"))
                        .endLimit()
                        .endSpec()
                        .build())
                .create();

        assertTranslated(namespace.run(Pods.withGpuMemory(lab, "defaulted", 1000)));
    }

    @Test
    void aQuotaCountsVgpus(Lab lab, TestNamespace namespace) {
        lab.client()
                .resource(new ResourceQuotaBuilder()
                        .withNewMetadata()
                        .withName("one-vgpu")
                        .withNamespace(namespace.name())
                        .endMetadata()
                        .withNewSpec()
                        .addToHard("requests." + Resources.VGPU, new Quantity("1"))
                        .endSpec()
                        .build())
                .create();
        // The quota admits pods once its controller has written what is used.
        awaitTrue("the first pod is admitted", EVENTUALLY, () -> {
            try {
                namespace.create(Pods.withGpuMemory(lab, "first", 1000));
                return true;
            } catch (KubernetesClientException e) {
                return false;
            }
        });

        assertThatThrownBy(() -> namespace.create(Pods.withGpuMemory(lab, "second", 1000)))
                .hasMessageContaining("exceeded quota: one-vgpu, requested: requests.aliquot.io/vgpu=1");
    }

    @Test
    void vgpusWithAnotherSchedulerOrBesideNvidiasGpusAreRefused(Lab lab, TestNamespace namespace) {
        Pod other = Pods.withLimits(lab, "other", Map.of(Resources.VGPU, "1"));
        other.getSpec().setSchedulerName("volcano");
        Pod both = Pods.withLimits(lab, "both", Map.of(Resources.VGPU, "1", ForeignResources.NVIDIA_GPU, "1"));

        assertThatThrownBy(() -> namespace.create(other)).hasMessageContaining("remove spec.schedulerName volcano");
        assertThatThrownBy(() -> namespace.create(both))
                .hasMessageContaining("write either nvidia.com/gpu or aliquot.io/vgpu");
    }
}
