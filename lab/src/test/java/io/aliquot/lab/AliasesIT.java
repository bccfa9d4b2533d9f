package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.Vgpu;
import io.fabric8.kubernetes.api.model.Pod;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Pods that were written for HAMi and for ACK. */
@ExtendWith(LabExtension.class)
class AliasesIT {
    @Test
    void aPodWithHamiNamesGetsTheGpuThatItSelects(Lab lab, TestNamespace namespace) {
        List<Gpu> gpus = Allocations.inventory(lab, namespace.node()).gpus();
        String wanted = gpus.get(1).uuid();
        Pod pod = Pods.withAnnotations(
                Pods.withLimits(lab, "hami", Map.of("nvidia.com/gpu", "1", "nvidia.com/gpumem-percentage", "50")),
                Map.of(
                        "nvidia.com/use-gputype",
                        "A100,V100",
                        "nvidia.com/use-gpuuuid",
                        wanted + "," + gpus.get(0).uuid(),
                        "nvidia.com/nouse-gpuuuid",
                        gpus.get(0).uuid(),
                        "hami.io/gpu-scheduler-policy",
                        "spread"));

        assertThat(Allocations.of(namespace.run(pod), Pods.MAIN))
                .singleElement()
                .satisfies(vgpu -> {
                    assertThat(vgpu.uuid()).isEqualTo(wanted);
                    assertThat(vgpu.memoryMiB()).isEqualTo(40960);
                });
        assertThat(namespace.exec("hami", "nvidia-smi").expectSuccess()).contains("0MiB / 40960MiB");
    }

    @Test
    void aPodWithAckNamesGetsItsMemoryOnTwoGpus(Lab lab, TestNamespace namespace) {
        Pod pod = Pods.withLimits(lab, "ack", Map.of("aliyun.com/gpu-mem", "6", "aliyun.com/gpu-core.percentage", "30"))
                .edit()
                .editMetadata()
                .addToLabels("aliyun.com/gpu-count", "2")
                .endMetadata()
                .build();

        assertThat(Allocations.of(namespace.run(pod), Pods.MAIN))
                .hasSize(2)
                .doesNotHaveDuplicates()
                .allSatisfy(vgpu -> {
                    assertThat(vgpu.memoryMiB()).isEqualTo(3072);
                    assertThat(vgpu.cores()).isEqualTo(30);
                })
                .extracting(Vgpu::uuid)
                .doesNotHaveDuplicates();
        assertThat(namespace.exec("ack", "nvidia-smi").expectSuccess().split("0MiB / 3072MiB", -1))
                .hasSize(3);
    }
}
