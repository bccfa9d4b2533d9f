package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

/** Where containerd injects CDI devices, and only a RuntimeClass names NVIDIA's runtime. */
@NodeKind.Required(NodeKind.CDI)
@LongTier.Only
class GpuIsolationCdiIT extends GpuIsolation {
    @Test
    void aPodWhoseSpecNamesAllGpusSeesNone(Lab lab, TestNamespace namespace) {
        namespace.run(monitor(lab));

        assertThat(namespace
                        .exec("monitor", "printenv", "NVIDIA_VISIBLE_DEVICES")
                        .expectSuccess())
                .isEqualTo("all\n");
        assertSeesNoGpu(namespace, "monitor");
    }
}
