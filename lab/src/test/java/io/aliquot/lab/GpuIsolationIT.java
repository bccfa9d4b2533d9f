package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.PROMPT;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Annotations;
import io.aliquot.api.Resources;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.ContainerBuilder;
import io.fabric8.kubernetes.api.model.EnvVarBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Quantity;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What a pod with a share of a GPU sees, and what it doesn't. */
@ExtendWith(LabExtension.class)
class GpuIsolationIT {
    private static final Map<String, String> SHARE =
            Map.of(Resources.GPU, "1", Resources.MEMORY, "3000", Resources.CORES, "30");

    @Test
    void aPodThatAsksFor3000MebibytesAnd30PercentRunsWithin5Seconds(Lab lab, TestNamespace space) {
        space.create(Pods.asking(lab, "first", SHARE));

        Pod pod = space.awaitRunning("first", PROMPT);

        assertThat(Allocations.of(pod, Pods.MAIN)).singleElement().satisfies(vgpu -> {
            assertThat(vgpu.memoryMiB()).isEqualTo(3000);
            assertThat(vgpu.cores()).isEqualTo(30);
            assertThat(vgpu.exclusive()).isFalse();
        });
        assertThat(space.exec("first", "cat", "/etc/aliquot/vgpu").expectSuccess())
                .as("the limit file")
                .isEqualTo(space.annotation("first", Annotations.vgpu(Pods.MAIN)));
    }

    @Test
    void nvidiaSmiShowsOneGpuOf3000Mebibytes(Lab lab, TestNamespace space) {
        Pod pod = space.run(Pods.asking(lab, "smi", SHARE));

        String shown = space.exec("smi", "nvidia-smi").expectSuccess();

        assertThat(shown.split("0MiB / 3000MiB", -1)).as(shown).hasSize(2);
        assertThat(space.exec("smi", "nvidia-smi", "-L").expectSuccess().lines())
                .singleElement()
                .asString()
                .contains(Allocations.gpu(pod));
    }

    @Test
    void anAllocationPastTheLimitIsRefusedAndTheProgramGoesOn(Lab lab, TestNamespace space) {
        space.run(Pods.asking(lab, "limit", SHARE));

        String steps = space.exec("limit", "vgpu-sample", "alloc", "2900", "alloc", "200", "free", "alloc", "200")
                .expectSuccess();

        assertThat(steps.lines().filter(line -> line.startsWith("alloc")))
                .containsExactly(
                        "alloc 2900 MiB: CUDA_SUCCESS",
                        "alloc 200 MiB: CUDA_ERROR_OUT_OF_MEMORY",
                        "alloc 200 MiB: CUDA_SUCCESS");
    }

    @Test
    void twoProcessesOfAContainerShareItsMemory(Lab lab, TestNamespace space) {
        space.run(Pods.asking(lab, "two", SHARE));

        Lab.Output output = space.exec("two", "bash", "-c", """
                set -e
                vgpu-sample alloc 2000 hold > /tmp/first &
                until grep -q alloc /tmp/first; do sleep 0.05; done
                grep alloc /tmp/first
                vgpu-sample alloc 1001 alloc 1000
                nvidia-smi | grep -o '[0-9]*MiB / 3000MiB'
                kill -KILL $!
                wait $! || true
                vgpu-sample alloc 3000
                """);

        assertThat(output.expectSuccess().lines())
                .containsExactly(
                        "alloc 2000 MiB: CUDA_SUCCESS",
                        "alloc 1001 MiB: CUDA_ERROR_OUT_OF_MEMORY",
                        "alloc 1000 MiB: CUDA_SUCCESS",
                        "2000MiB / 3000MiB",
                        "alloc 3000 MiB: CUDA_SUCCESS");
    }

    @Test
    void twoContainersOfAPodHaveEachTheirOwnMemory(Lab lab, TestNamespace space) {
        Pod one = Pods.memory(lab, "pair", 3000);
        Container container = one.getSpec().getContainers().get(0);
        Pod pair = one.edit()
                .editSpec()
                .addToContainers(
                        withMemory(container.edit().withName("other"), 500).build())
                .endSpec()
                .build();
        space.run(pair);

        assertThat(space.exec("pair", "vgpu-sample", "alloc", "3000", "alloc", "1")
                        .expectSuccess())
                .contains("alloc 3000 MiB: CUDA_SUCCESS", "alloc 1 MiB: CUDA_ERROR_OUT_OF_MEMORY");
        assertThat(space.execIn("pair", "other", "vgpu-sample", "alloc", "500", "alloc", "1")
                        .expectSuccess())
                .contains("alloc 500 MiB: CUDA_SUCCESS", "alloc 1 MiB: CUDA_ERROR_OUT_OF_MEMORY");
    }

    /** A sidecar is an init container that is restarted (KEP-753). */
    @Test
    void anInitContainerAndASidecarHaveEachTheirOwnMemory(Lab lab, TestNamespace space) {
        Pod one = Pods.memory(lab, "family", 3000);
        Container container = one.getSpec().getContainers().get(0);
        Pod family = one.edit()
                .editSpec()
                .addToInitContainers(
                        withMemory(container.edit().withName("init"), 4000)
                                .withCommand("vgpu-sample", "alloc", "4000", "alloc", "1")
                                .build(),
                        withMemory(container.edit().withName("sidecar"), 500)
                                .withRestartPolicy("Always")
                                .build())
                .endSpec()
                .build();
        space.run(family);

        assertThat(lab.kubectl("logs", "family", "--namespace", space.name(), "--container", "init")
                        .expectSuccess())
                .contains("alloc 4000 MiB: CUDA_SUCCESS", "alloc 1 MiB: CUDA_ERROR_OUT_OF_MEMORY");
        assertThat(space.execIn("family", "sidecar", "vgpu-sample", "alloc", "500", "alloc", "1")
                        .expectSuccess())
                .contains("alloc 500 MiB: CUDA_SUCCESS", "alloc 1 MiB: CUDA_ERROR_OUT_OF_MEMORY");
        assertThat(space.exec("family", "vgpu-sample", "alloc", "3000", "alloc", "1")
                        .expectSuccess())
                .contains("alloc 3000 MiB: CUDA_SUCCESS", "alloc 1 MiB: CUDA_ERROR_OUT_OF_MEMORY");
    }

    @Test
    void aPodWithoutARequestSeesNoGpuEvenIfItsSpecNamesAllOfThem(Lab lab, TestNamespace space) {
        Pod nosy = Pods.plain(lab, "nosy")
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
        space.run(nosy);

        assertThat(space.exec("nosy", "printenv", "NVIDIA_VISIBLE_DEVICES").expectSuccess())
                .isEqualTo("void\n");
        assertThat(space.exec("nosy", "sh", "-c", "command -v nvidia-smi; ls /run/aliquot-fake-driver/gpus")
                        .out())
                .isEmpty();
    }

    @Test
    void aContainerWithoutARequestBesideOneWithSeesNoGpu(Lab lab, TestNamespace space) {
        Pod one = Pods.memory(lab, "sidecar", 3000);
        space.run(one.edit()
                .editSpec()
                .addToContainers(Pods.plain(lab, "sidecar")
                        .getSpec()
                        .getContainers()
                        .get(0)
                        .edit()
                        .withName("side")
                        .build())
                .endSpec()
                .build());

        assertThat(space.execIn("sidecar", "side", "printenv", "NVIDIA_VISIBLE_DEVICES")
                        .expectSuccess())
                .isEqualTo("void\n");
        assertThat(space.exec("sidecar", "nvidia-smi", "-L").expectSuccess().lines())
                .hasSize(1);
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aContainerThatKubectlDebugAddsSeesNoGpu(boolean share, Lab lab, TestNamespace space) {
        space.run(share ? Pods.memory(lab, "debugged", 3000) : Pods.plain(lab, "debugged"));
        for (String name : List.of("one", "two")) { // the first one is there when the second one comes
            lab.kubectl(
                            "debug",
                            "debugged",
                            "--namespace=" + space.name(),
                            "--image=" + lab.image(),
                            "--image-pull-policy=Never",
                            "--container=" + name,
                            "--env=NVIDIA_VISIBLE_DEVICES=all",
                            "--",
                            "sleep",
                            "infinity")
                    .expectSuccess();
        }
        TestNamespace.awaitTrue(
                "the second one runs",
                EVENTUALLY,
                () -> space.get("debugged").getStatus().getEphemeralContainerStatuses().stream()
                        .anyMatch(status -> status.getName().equals("two")
                                && status.getState().getRunning() != null));

        assertThat(space.execIn("debugged", "two", "printenv", "NVIDIA_VISIBLE_DEVICES")
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
