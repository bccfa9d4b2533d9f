package io.aliquot.lab;

import org.junit.jupiter.api.Test;

/** Where containerd injects CDI devices, and only a RuntimeClass names NVIDIA's runtime. */
@NodeKind.Required(NodeKind.CDI)
@LongTier.Only
class GpuIsolationCdiIT extends GpuIsolation {
    @Test
    void aPodWhoseSpecNamesAllGpusSeesNone(Lab lab, TestNamespace namespace) {
        assertAMonitorSeesNoGpu(lab, namespace);
    }
}
