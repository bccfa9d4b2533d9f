package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * A node whose container runtime knows no runtime of NVIDIA's: containers get their GPUs by CDI alone, and the agent has the
 * driver from the host.
 */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class WithoutNvidiaRuntimeIT {
    private static final String DRIVER = "/var/lib/aliquot/fake-driver";

    @Test
    void theAgentHasTheDriverFromTheHostAndPodsAreLimited(Lab lab, TestNamespace namespace) {
        String node = lab.node(NodeKind.CDI);
        try {
            renameHandler(lab, node, "nvidia", "absent");
            Pod ofRuntime = Pods.onNode(Pods.withoutGpu(lab, "of-runtime"), node);
            ofRuntime.getSpec().setRuntimeClassName("nvidia");
            namespace.create(ofRuntime);
            awaitTrue(
                    "the node has no such handler",
                    EVENTUALLY,
                    () -> namespace.events("of-runtime").stream()
                            .anyMatch(event -> event.getMessage().contains("no runtime for \"nvidia\" is configured")));

            // Simulated GPUs are files that NVML writes to, so they are those of the agent's own folder.
            lab.helm(
                    "upgrade",
                    "--reuse-values",
                    "--set",
                    "runtimeClass.name=,runtimeClass.create=false,devicePlugin.driverRoot=" + DRIVER,
                    "--set",
                    "devicePlugin.extraEnv[0].name=ALIQUOT_FAKE_GPUS,devicePlugin.extraEnv[0].value=" + DRIVER
                            + "/gpus");
            awaitRelease(lab);
            awaitTrue("the node has vGPUs", EVENTUALLY, () -> lab.allocatable(node, Resources.VGPU) > 0);

            for (NodeKind kind : List.of(NodeKind.DEFAULT_RUNTIME, NodeKind.CDI)) {
                String name = "share-on-" + lab.node(kind);
                Pod pod = namespace.run(Pods.onNode(Pods.withGpuMemory(lab, name, 2000), lab.node(kind)));
                assertThat(pod.getSpec().getRuntimeClassName()).isNull();
                assertThat(namespace.exec(name, "nvidia-smi").expectSuccess()).contains("0MiB / 2000MiB");
                assertThat(namespace
                                .exec(name, "nvidia-smi", "-L")
                                .expectSuccess()
                                .lines())
                        .singleElement()
                        .asString()
                        .contains(Allocations.gpuOf(pod));
                assertThat(namespace
                                .exec(name, "vgpu-sample", "alloc", "1500", "alloc", "800")
                                .expectSuccess())
                        .contains("alloc 1500 MiB: CUDA_SUCCESS", "alloc 800 MiB: CUDA_ERROR_OUT_OF_MEMORY");
            }
            assertThat(rightsOfTheAgents(lab, node))
                    .containsExactly("CapBnd: 0000000008000000", "CapEff: 0000000008000000", "NoNewPrivs: 1");
        } finally {
            renameHandler(lab, node, "absent", "nvidia");
            lab.aliquot("up", "--no-build").expectSuccess();
            awaitRelease(lab);
        }
    }

    private static void renameHandler(Lab lab, String node, String from, String to) {
        lab.configureContainerd(node, "s/containerd[.]runtimes[.]%s\\b/containerd.runtimes.%s/".formatted(from, to));
    }

    private static void awaitRelease(Lab lab) {
        lab.awaitSchedulers();
        lab.awaitAgents();
    }

    /** What the kernel says of the agents' processes, each line once. The nodes of the lab see each other's processes. */
    private static List<String> rightsOfTheAgents(Lab lab, String node) {
        return lab.onNode(
                        node,
                        "bash",
                        "-c",
                        "grep -ls 'aliquot-device-plugin[.]jar' /proc/[0-9]*/cmdline | sed 's/cmdline$/status/'"
                                + " | xargs grep -hE '^(CapBnd|CapEff|NoNewPrivs):' | tr '\\t' ' ' | sort -u")
                .expectSuccess()
                .lines()
                .toList();
    }
}
