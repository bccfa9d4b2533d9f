package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Pod;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.Isolated;

/** NVIDIA's runtime, which the RuntimeClass names, gives containers their GPUs, and Allocate the mounts that limit them. */
@Isolated
@LongTier.Only
class VirtualMachineRuntimeIT extends VirtualMachine {
    @BeforeAll
    static void byTheRuntime(Lab lab) {
        inject(lab, "runtime", false);
    }

    @AfterAll
    static void asBefore(Lab lab) {
        inject(lab, "auto", true);
    }

    private static void inject(Lab lab, String by, boolean byCdi) {
        lab.upgrade("devicePlugin.deviceInjection=" + by);
        awaitTrue(
                "the machine's agent says so",
                SLOWLY,
                () -> Allocations.inventory(lab, lab.virtualMachine()).injectsByCdi() == byCdi);
        awaitTrue(
                "all agents",
                SLOWLY,
                () -> lab.kubectl(
                                "rollout",
                                "status",
                                "daemonset/aliquot-device-plugin",
                                "--namespace",
                                Lab.NAMESPACE,
                                "--watch=false")
                        .out()
                        .contains("successfully rolled out"));
    }

    @Test
    void aContainerHasItsGpuFromTheRuntimeAndItsLimitsFromMounts(Lab lab, TestNamespace namespace) {
        Pod pod = run(namespace, share(lab, "share"));

        assertThat(namespace.exec("share", "printenv", "NVIDIA_VISIBLE_DEVICES").expectSuccess())
                .contains(Allocations.gpuOf(pod));
        assertIsLimited(namespace, "share");
    }

    /** {@link VirtualMachineIT} has what happens where the GPU comes with its limits. */
    @Test
    void aPodWhoseContainerCoversItsLimitsIsEnded(Lab lab, TestNamespace namespace) {
        namespace.create(onMachine(lab, LimitsCheckIT.covering(lab, "covering", "ln -s /etc /x/e", "/x/e")));

        awaitTrue(
                "an event says why",
                SLOWLY,
                () -> namespace.events("covering").stream()
                        .anyMatch(event -> "GpuLimitsCovered".equals(event.getReason())));
        awaitTrue(
                "the pod is gone",
                SLOWLY,
                () -> namespace
                                .client()
                                .pods()
                                .inNamespace(namespace.name())
                                .withName("covering")
                                .get()
                        == null);
    }
}
