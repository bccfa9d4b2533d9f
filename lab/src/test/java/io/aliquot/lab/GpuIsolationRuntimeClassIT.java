package io.aliquot.lab;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.Isolated;

/** Where NVIDIA's runtime gives GPUs to the containers of pods that name it by a RuntimeClass. */
@NodeKind.Required(value = NodeKind.RUNTIME_CLASS, because = "each kind has such a class of its own")
@LongTier.Only
@Isolated
class GpuIsolationRuntimeClassIT extends GpuIsolation {
    @Test
    void aPodWhoseSpecNamesAllGpusSeesNone(Lab lab, TestNamespace namespace) {
        assertAMonitorSeesNoGpu(lab, namespace);
    }
}
