package io.aliquot.lab;

import org.junit.jupiter.api.Test;

/** Where containerd injects CDI devices, and only a RuntimeClass names NVIDIA's runtime. */
@NodeKind.Required(value = NodeKind.CDI, because = "each kind has such a class of its own")
@LongTier.Only
class GpuIsolationCdiIT extends GpuIsolation {
    @Test
    void aPodWhoseSpecNamesAllGpusSeesNone(Lab lab, TestNamespace namespace) {
        assertAMonitorSeesNoGpu(lab, namespace);
    }
}
