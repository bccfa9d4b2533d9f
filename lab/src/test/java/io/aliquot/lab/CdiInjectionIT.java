package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.ContainerBuilder;
import io.fabric8.kubernetes.api.model.ContainerStatus;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.api.model.VolumeMount;
import io.fabric8.kubernetes.api.model.VolumeMountBuilder;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/** On a node whose containers get GPU and limits by one CDI device, none has the one without the other. Takes a minute. */
@NodeKind.Required(value = NodeKind.CDI, because = "the agent writes no CDI devices there")
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class CdiInjectionIT {
    private static final String SPECS = "/var/run/cdi/";
    private static final Duration REBOOT = Duration.ofMinutes(5);
    private static final String OWN_SHARE = "0MiB / 2000MiB";

    /** With the RuntimeClass, whose runtime injects nothing, since the variable is {@code void}. */
    @Test
    void aContainerHasItsGpuAndItsLimitsFromOneDevice(Lab lab, TestNamespace namespace) {
        Pod pod = namespace.run(share(lab, "share"));

        assertThat(namespace.exec("share", "nvidia-smi").expectSuccess()).contains(OWN_SHARE);
        assertThat(namespace.exec("share", "nvidia-smi", "-L").expectSuccess().lines())
                .singleElement()
                .asString()
                .contains(Allocations.gpuOf(pod));
        assertThat(namespace.exec("share", "printenv", "NVIDIA_VISIBLE_DEVICES").expectSuccess())
                .isEqualToIgnoringWhitespace("void");
        assertThat(pod.getMetadata().getAnnotations()).containsEntry(Annotations.visibleDevices(Pods.MAIN), "void");
        assertThat(specsOf(lab, pod)).singleElement().asString().contains(Allocations.gpuOf(pod), "ld.so.preload");
    }

    /** An init container has the slot of the main one, and another share. */
    @Test
    void initContainersAndRestartsHaveTheirOwnLimits(Lab lab, TestNamespace namespace) {
        Pod pod = share(lab, "share");
        Container main = pod.getSpec().getContainers().getFirst();
        Container init = new ContainerBuilder(main)
                .withName("init")
                .withCommand("bash", "-c", "nvidia-smi > /shared/init")
                .editResources()
                .addToLimits(Resources.MEMORY, new Quantity("1000"))
                .endResources()
                .build();
        namespace.run(withSharedFolder(pod, init, main));
        assertThat(namespace.exec("share", "cat", "/shared/init").expectSuccess())
                .contains("0MiB / 1000MiB");
        assertThat(namespace.exec("share", "nvidia-smi").expectSuccess()).contains(OWN_SHARE);

        WithoutAllocateIT.restart(lab, namespace, lab.node(NodeKind.CDI), Pods.MAIN);
        assertThat(namespace.exec("share", "nvidia-smi").expectSuccess()).contains(OWN_SHARE);
    }

    /** {@link LimitsCheckIT} has what happens where the GPU comes from NVIDIA's runtime. */
    @Test
    void aContainerThatCoversItsLimitsDoesNotStart(Lab lab, TestNamespace namespace) {
        String node = lab.node(NodeKind.CDI);
        namespace.create(Pods.onNode(LimitsCheckIT.covering(lab, "link-in-volume", "ln -s /etc /x/e", "/x/e"), node));
        namespace.create(Pods.onNode(LimitsCheckIT.covering(lab, "link-in-image", "true", "/opt/etc"), node));

        awaitTrue(
                "events say why",
                EVENTUALLY,
                () -> isRefusedForItsLimits(namespace, "link-in-volume")
                        && isRefusedForItsLimits(namespace, "link-in-image"));
    }

    static boolean isRefusedForItsLimits(TestNamespace namespace, String pod) {
        return namespace.events(pod).stream()
                .anyMatch(event -> event.getMessage().contains("aliquot-hook: /etc/aliquot"));
    }

    /** {@link WithoutAllocateIT} has what happens where the GPU comes from NVIDIA's runtime. */
    @Test
    void aPodThatStartsWithoutAllocateAfterARebootHasNoGpu(Lab lab, TestNamespace namespace) {
        String node = lab.node(NodeKind.CDI);
        Pod pod = namespace.run(share(lab, "share"));
        lab.kill(node + "/kubelet");
        lab.onNode(node, "rm", WithoutAllocateIT.CHECKPOINT).expectSuccess();
        lab.reboot(node);
        lab.awaitAgents();

        expectNoGpu(namespace, pod);
        Allocations.expectNoGpuOverCapacity(lab);
    }

    /** The pod's container starts without a GPU or does not start, after a reboot of a node whose kubelet has no checkpoint. */
    static void expectNoGpu(TestNamespace namespace, Pod pod) {
        String name = pod.getMetadata().getName();
        awaitTrue(
                "the container runs without a GPU, or does not start",
                REBOOT,
                () -> namespace.events(name).stream()
                        .anyMatch(event -> List.of("GpuNotVisible", "Failed").contains(event.getReason())));
        ContainerStatus status = TestNamespace.containerStatus(namespace.get(name), Pods.MAIN);
        if (status.getState().getRunning() != null) {
            assertThat(namespace.exec(name, "bash", "-c", "! nvidia-smi").expectSuccess())
                    .as("neither the driver nor a GPU")
                    .doesNotContain("MiB");
            assertThat(namespace
                            .exec(name, "bash", "-c", "ls /dev/nvidia* /etc/ld.so.preload 2> /dev/null || true")
                            .expectSuccess())
                    .isEmpty();
        }
        assertThat(namespace.get(name).getMetadata().getUid())
                .isEqualTo(pod.getMetadata().getUid());
    }

    private static Pod share(Lab lab, String name) {
        return Pods.onNode(Pods.withGpuMemory(lab, name, 2000), lab.node(NodeKind.CDI));
    }

    /** With a volume at {@code /shared} of both. */
    static Pod withSharedFolder(Pod pod, Container init, Container main) {
        VolumeMount shared = new VolumeMountBuilder()
                .withName("shared")
                .withMountPath("/shared")
                .build();
        return pod.edit()
                .editSpec()
                .withInitContainers(
                        new ContainerBuilder(init).addToVolumeMounts(shared).build())
                .withContainers(
                        new ContainerBuilder(main).addToVolumeMounts(shared).build())
                .addNewVolume()
                .withName("shared")
                .withNewEmptyDir()
                .endEmptyDir()
                .endVolume()
                .endSpec()
                .build();
    }

    /** Each in a line. */
    private static List<String> specsOf(Lab lab, Pod pod) {
        return lab.onNode(
                        lab.node(NodeKind.CDI),
                        "bash",
                        "-c",
                        "cat " + SPECS + "aliquot.io-vgpu_*.json | sed 's/}{/}\\n{/g'")
                .expectSuccess()
                .lines()
                .filter(spec -> spec.contains(pod.getMetadata().getUid()))
                .toList();
    }
}
