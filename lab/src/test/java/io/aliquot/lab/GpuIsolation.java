package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.ContainerBuilder;
import io.fabric8.kubernetes.api.model.EnvVarBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Quantity;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * A container with a share of a GPU sees that share and can allocate no more; other containers see no GPU. A subclass runs
 * the tests on a node of one kind.
 */
@ExtendWith(LabExtension.class)
abstract class GpuIsolation {
    private static final Map<String, String> LIMITS =
            Map.of(Resources.VGPU, "1", Resources.MEMORY, "3000", Resources.CORES, "30");

    @Test
    void nvidiaSmiShowsOneGpuOf3000Mebibytes(Lab lab, TestNamespace namespace) {
        Pod pod = namespace.run(Pods.withLimits(lab, "smi", LIMITS));

        String output = namespace.exec("smi", "nvidia-smi").expectSuccess();

        assertThat(output.split("0MiB / 3000MiB", -1)).as(output).hasSize(2);
        assertThat(namespace.exec("smi", "nvidia-smi", "-L").expectSuccess().lines())
                .singleElement()
                .asString()
                .contains(Allocations.gpuOf(pod));
    }

    @Test
    void anAllocationBeyondTheLimitIsRefusedAndTheProgramContinues(Lab lab, TestNamespace namespace) {
        namespace.run(Pods.withLimits(lab, "limit", LIMITS));

        String output = namespace
                .exec("limit", "vgpu-sample", "alloc", "2700", "alloc", "200", "free", "alloc", "200")
                .expectSuccess();

        assertThat(output.lines().filter(line -> line.startsWith("alloc")))
                .containsExactly(
                        "alloc 2700 MiB: CUDA_SUCCESS",
                        "alloc 200 MiB: CUDA_ERROR_OUT_OF_MEMORY",
                        "alloc 200 MiB: CUDA_SUCCESS");
    }

    @Test
    @LongTier.Only
    void aProgramThatResolvesFunctionsInARootOfItsOwnAndReturnsIsLimited(Lab lab, TestNamespace namespace)
            throws IOException {
        namespace.run(Pods.withLimits(lab, "chroot", LIMITS));
        String script;
        try (InputStream resource = GpuIsolation.class.getResourceAsStream("chroot.py")) {
            script = new String(resource.readAllBytes(), StandardCharsets.UTF_8);
        }

        assertThat(namespace
                        .exec("chroot", "python3", "-c", script)
                        .expectSuccess()
                        .lines())
                .containsExactly("4000 2", "500 0"); // CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS
    }

    @Test
    void twoProcessesOfAContainerShareItsMemoryLimit(Lab lab, TestNamespace namespace) {
        namespace.run(Pods.withLimits(lab, "two", LIMITS));

        Lab.Output output = namespace.exec("two", "bash", "-c", """
                set -e
                vgpu-sample alloc 2000 hold > /tmp/first &
                until nvidia-smi | grep -o '2256MiB / 3000MiB'; do sleep 0.05; done # with its context
                grep alloc /tmp/first
                vgpu-sample alloc 600 alloc 480 # with a context of its own
                kill -KILL $!
                wait $! || true
                until nvidia-smi | grep -o ' 0MiB / 3000MiB'; do sleep 0.05; done
                vgpu-sample alloc 2700
                """);

        assertThat(output.expectSuccess().lines())
                .containsExactly(
                        "2256MiB / 3000MiB",
                        "alloc 2000 MiB: CUDA_SUCCESS",
                        "alloc 600 MiB: CUDA_ERROR_OUT_OF_MEMORY",
                        "alloc 480 MiB: CUDA_SUCCESS",
                        " 0MiB / 3000MiB",
                        "alloc 2700 MiB: CUDA_SUCCESS");
    }

    @Test
    @LongTier.Only
    void twoContainersOfAPodHaveSeparateMemoryLimits(Lab lab, TestNamespace namespace) {
        Pod one = Pods.withGpuMemory(lab, "pair", 3000);
        Container container = one.getSpec().getContainers().get(0);
        Pod pair = one.edit()
                .editSpec()
                .addToContainers(
                        withMemory(container.edit().withName("other"), 500).build())
                .endSpec()
                .build();
        namespace.run(pair);

        assertThat(namespace
                        .exec("pair", "vgpu-sample", "alloc", "2700", "alloc", "100")
                        .expectSuccess())
                .contains("alloc 2700 MiB: CUDA_SUCCESS", "alloc 100 MiB: CUDA_ERROR_OUT_OF_MEMORY");
        assertThat(namespace
                        .execIn("pair", "other", "vgpu-sample", "alloc", "240", "alloc", "100")
                        .expectSuccess())
                .contains("alloc 240 MiB: CUDA_SUCCESS", "alloc 100 MiB: CUDA_ERROR_OUT_OF_MEMORY");
    }

    /** A sidecar is an init container with the restartPolicy Always (KEP-753). */
    @Test
    void anInitContainerAndASidecarHaveSeparateMemoryLimits(Lab lab, TestNamespace namespace) {
        Pod one = Pods.withGpuMemory(lab, "family", 3000);
        Container container = one.getSpec().getContainers().get(0);
        Pod family = one.edit()
                .editSpec()
                .addToInitContainers(
                        withMemory(container.edit().withName("init"), 4000)
                                .withCommand("vgpu-sample", "alloc", "3700", "alloc", "100")
                                .build(),
                        withMemory(container.edit().withName("sidecar"), 500)
                                .withRestartPolicy("Always")
                                .build())
                .endSpec()
                .build();
        Pod bound = namespace.run(family);

        awaitTrue(
                "the init container has ended, and its limit with it",
                EVENTUALLY,
                () -> limitMiB(lab, bound, "main") == 3000 && limitMiB(lab, bound, "init") == 0);
        assertThat(limitMiB(lab, bound, "sidecar")).isEqualTo(500);
        assertThat(UsageIT.value(lab, bound, "aliquot_pod_memory_allocated_bytes"))
                .as("what the pod holds is what its init container needed")
                .hasValue(4000.0 * (1 << 20));
        assertThat(lab.kubectl(
                                "get",
                                "gpushare",
                                "family",
                                "--namespace",
                                namespace.name(),
                                "-o",
                                "jsonpath={.status.memoryMiB}")
                        .expectSuccess())
                .isEqualTo("4000");
        assertThat(bound.getMetadata().getAnnotations()).containsEntry(Annotations.TOTAL_MEMORY_MIB, "4000");
        assertThat(lab.kubectl("logs", "family", "--namespace", namespace.name(), "--container", "init")
                        .expectSuccess())
                .contains("alloc 3700 MiB: CUDA_SUCCESS", "alloc 100 MiB: CUDA_ERROR_OUT_OF_MEMORY");
        assertThat(namespace
                        .execIn("family", "sidecar", "vgpu-sample", "alloc", "240", "alloc", "100")
                        .expectSuccess())
                .contains("alloc 240 MiB: CUDA_SUCCESS", "alloc 100 MiB: CUDA_ERROR_OUT_OF_MEMORY");
        assertThat(namespace
                        .exec("family", "vgpu-sample", "alloc", "2700", "alloc", "100")
                        .expectSuccess())
                .contains("alloc 2700 MiB: CUDA_SUCCESS", "alloc 100 MiB: CUDA_ERROR_OUT_OF_MEMORY");
    }

    private static double limitMiB(Lab lab, Pod pod, String container) {
        return UsageIT.value(lab, pod, "aliquot_container_memory_limit_bytes", "container=\"" + container + "\"")
                        .orElse(0)
                / (1 << 20);
    }

    @Test
    void aPodWithoutAGpuRequestSeesNoGpuEvenIfItsImageNamesAll(Lab lab, TestNamespace namespace) {
        namespace.run(Pods.withoutGpu(lab, "no-request"));

        assertThat(namespace
                        .exec("no-request", "printenv", "NVIDIA_VISIBLE_DEVICES")
                        .expectSuccess())
                .isEqualTo("void\n");
        assertSeesNoGpu(namespace, "no-request");
    }

    static void assertSeesNoGpu(TestNamespace namespace, String pod) {
        assertThat(namespace
                        .exec(pod, "sh", "-c", "command -v nvidia-smi; ls /run/aliquot-fake-driver/gpus")
                        .out())
                .isEmpty();
    }

    /** Where NVIDIA's runtime is not the default, nothing reads the variable. */
    static void assertAMonitorSeesNoGpu(Lab lab, TestNamespace namespace) {
        namespace.run(monitor(lab));

        assertThat(namespace
                        .exec("monitor", "printenv", "NVIDIA_VISIBLE_DEVICES")
                        .expectSuccess())
                .isEqualTo("all\n");
        assertSeesNoGpu(namespace, "monitor");
    }

    /** A pod without a GPU request whose spec names all GPUs, as NVIDIA's DaemonSets do. */
    static Pod monitor(Lab lab) {
        return Pods.withoutGpu(lab, "monitor")
                .edit()
                .editSpec()
                .editFirstContainer()
                .addToEnv(new EnvVarBuilder()
                        .withName("NVIDIA_VISIBLE_DEVICES")
                        .withValue("all")
                        .build())
                .endContainer()
                .endSpec()
                .build();
    }

    @Test
    void aContainerWithoutAGpuRequestSeesNoGpuBesideOneWithARequest(Lab lab, TestNamespace namespace) {
        Pod one = Pods.withGpuMemory(lab, "sidecar", 3000);
        namespace.run(one.edit()
                .editSpec()
                .addToContainers(Pods.withoutGpu(lab, "sidecar")
                        .getSpec()
                        .getContainers()
                        .get(0)
                        .edit()
                        .withName("side")
                        .build())
                .endSpec()
                .build());

        assertThat(namespace
                        .execIn("sidecar", "side", "printenv", "NVIDIA_VISIBLE_DEVICES")
                        .expectSuccess())
                .isEqualTo("void\n");
        assertThat(namespace.exec("sidecar", "nvidia-smi", "-L").expectSuccess().lines())
                .hasSize(1);
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void anEphemeralContainerOfKubectlDebugSeesNoGpu(boolean gpu, Lab lab, TestNamespace namespace) {
        namespace.run(gpu ? Pods.withGpuMemory(lab, "debugged", 3000) : Pods.withoutGpu(lab, "debugged"));
        for (String name : List.of("one", "two")) { // the second is added to a pod that already has one
            var command = new ArrayList<>(List.of(
                    "debug",
                    "debugged",
                    "--namespace=" + namespace.name(),
                    "--image=" + lab.sampleImage(),
                    "--image-pull-policy=Never",
                    "--container=" + name));
            if (gpu) {
                command.add("--env=NVIDIA_VISIBLE_DEVICES=all"); // without effect in a GPU pod
            }
            command.add("--");
            command.addAll(Pods.SLEEP);
            lab.kubectl(command.toArray(String[]::new)).expectSuccess();
        }
        TestNamespace.awaitTrue(
                "the second ephemeral container runs",
                EVENTUALLY,
                () -> namespace.get("debugged").getStatus().getEphemeralContainerStatuses().stream()
                        .anyMatch(status -> status.getName().equals("two")
                                && status.getState().getRunning() != null));

        assertThat(namespace
                        .execIn("debugged", "two", "printenv", "NVIDIA_VISIBLE_DEVICES")
                        .expectSuccess())
                .isEqualTo("void\n");
    }

    private static ContainerBuilder withMemory(ContainerBuilder container, int mib) {
        return container
                .editResources()
                .addToLimits(Resources.MEMORY, new Quantity(Integer.toString(mib)))
                .endResources();
    }
}
