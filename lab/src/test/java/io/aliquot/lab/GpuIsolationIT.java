package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

/** Where NVIDIA's runtime is the default, which gives GPUs to each container whose variable names them. */
@NodeKind.Required(value = NodeKind.DEFAULT_RUNTIME, because = "each kind has such a class of its own")
class GpuIsolationIT extends GpuIsolation {
    /** docs/security.md says what this leaves open. */
    @Test
    void aPodWhoseSpecNamesAllGpusIsLeftAlone(Lab lab, TestNamespace namespace) {
        namespace.run(monitor(lab));

        assertThat(namespace.exec("monitor", "nvidia-smi", "-L").expectSuccess().lines())
                .hasSizeGreaterThan(1);
    }
}
