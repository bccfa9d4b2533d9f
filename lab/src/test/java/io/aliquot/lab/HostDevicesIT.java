package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.ContainerBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Quantity;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Devices of another plugin beside a share: RDMA devices, and network cards that NVIDIA's network operator gives away. */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class HostDevicesIT {
    private static final String RDMA = "rdma/hca_shared_devices_a";
    private static final String CARD = "nvidia.com/hostdev";
    private static final int CORES = 30;
    private static final Map<String, String> SHARE =
            Map.of(Resources.MEMORY, "3000", Resources.CORES, Integer.toString(CORES), RDMA, "2", CARD, "1");

    @ParameterizedTest
    @EnumSource(
            value = NodeKind.class,
            names = {"DEFAULT_RUNTIME", "CDI"})
    void aShareHasWhatAnotherDevicePluginGivesIt(NodeKind kind, Lab lab, TestNamespace namespace) {
        String node = lab.node(kind);
        namespace.run(Pods.onNode(plugin(lab), node));
        awaitTrue(
                "the node has the plugin's devices",
                EVENTUALLY,
                () -> lab.allocatable(node, RDMA) == 4 && lab.allocatable(node, CARD) == 2);
        Pod share = Pods.withLimits(lab, "share", SHARE);
        Container main = share.getSpec().getContainers().getFirst();
        main.setCommand(List.of("sh", "-c", "vgpu-sample busy 600 > /tmp/busy"));
        share.getSpec()
                .getContainers()
                .add(new ContainerBuilder(main)
                        .withName("network")
                        .withCommand(Pods.SLEEP)
                        .withNewResources()
                        .addToLimits(RDMA, new Quantity("1"))
                        .endResources()
                        .build());

        Pod running = namespace.run(Pods.onNode(share, node));

        assertThat(running.getSpec().getContainers().getFirst().getResources().getLimits())
                .containsEntry(RDMA, new Quantity("2"))
                .containsEntry(CARD, new Quantity("1"));
        assertHasBoth(namespace);
        ComputeIT.awaitUtilization(namespace, "share", CORES);
        assertHasDevices(namespace, "network", RDMA, 1);
        assertThat(namespace
                        .execIn("share", "network", "bash", "-c", "! nvidia-smi && ls /dev/infiniband")
                        .expectSuccess())
                .as("a container without a share has no GPU")
                .contains("hca_shared_devices_a-")
                .doesNotContain("MiB");

        WithoutAllocateIT.restart(lab, namespace, node, Pods.MAIN);
        assertHasBoth(namespace);

        namespace.create(Pods.onNode(
                Pods.withLimits(lab, "waiting", Map.of(Resources.MEMORY, "1000", RDMA, "2", CARD, "1")), node));
        assertThat(namespace.awaitUnschedulable("waiting")).contains("Insufficient " + RDMA);
        namespace.delete("share");
        namespace.awaitRunning("waiting", EVENTUALLY);
    }

    /** The name begins as those of NVIDIA's GPUs do. */
    @ParameterizedTest
    @EnumSource(
            value = NodeKind.class,
            names = {"DEFAULT_RUNTIME", "CDI"})
    void aPodWithANetworkCardAloneIsNotAliquots(NodeKind kind, Lab lab, TestNamespace namespace) {
        String node = lab.node(kind);
        namespace.run(Pods.onNode(plugin(lab), node));
        awaitTrue("the node has cards", EVENTUALLY, () -> lab.allocatable(node, CARD) == 2);

        Pod pod = namespace.run(Pods.onNode(Pods.withLimits(lab, "card", Map.of(CARD, "1")), node));

        assertThat(pod.getSpec().getSchedulerName()).isEqualTo("default-scheduler");
        assertThat(pod.getMetadata().getLabels()).isNullOrEmpty();
        assertThat(pod.getMetadata().getAnnotations()).isNullOrEmpty();
        assertThat(namespace.execIn("card", Pods.MAIN, "ls", "/dev/infiniband").expectSuccess())
                .startsWith("hostdev-");
        assertThat(Allocations.inventory(lab, node).conflict()).isEmpty();
    }

    /** The lab's, in a pod, as such plugins run. */
    private static Pod plugin(Lab lab) {
        Pod pod = Pods.withoutGpu(lab, "plugin");
        pod.getSpec().getContainers().getFirst().setCommand(List.of("/plugin", RDMA + "=4", CARD + "=2"));
        return Pods.withHostPath(
                Pods.withHostPath(pod, lab.built("HOST_DEVICES"), "/plugin"), Pods.DEVICE_PLUGINS, Pods.DEVICE_PLUGINS);
    }

    /** The pod's main container: its share, and the devices that it requests. */
    private static void assertHasBoth(TestNamespace namespace) {
        assertThat(namespace.exec("share", "nvidia-smi").expectSuccess()).contains("MiB / 3000MiB");
        assertThat(namespace
                        .exec("share", "vgpu-sample", "alloc", "2000", "alloc", "800")
                        .expectSuccess())
                .contains("alloc 2000 MiB: CUDA_SUCCESS", "alloc 800 MiB: CUDA_ERROR_OUT_OF_MEMORY");
        assertHasDevices(namespace, Pods.MAIN, RDMA, 2);
        assertHasDevices(namespace, Pods.MAIN, CARD, 1);
    }

    /** A variable that names the devices, a device for each, and a mounted file. */
    private static void assertHasDevices(TestNamespace namespace, String container, String resource, int count) {
        String[] command = {
            "bash",
            "-c",
            """
                IFS=, read -ra ids <<< "${!1}"
                for id in "${ids[@]}"; do test -c "/dev/infiniband/$id" && echo "$id"; done
                test -s "/run/lab-${2/\\//-}.sock"
                """,
            "-",
            "PCIDEVICE_" + resource.toUpperCase(Locale.ROOT).replaceAll("[./-]", "_"),
            resource
        };
        assertThat(namespace.execIn("share", container, command).expectSuccess().lines())
                .as("%s of %s", resource, container)
                .hasSize(count)
                .allMatch(id -> id.startsWith(resource.replaceFirst(".*/", "") + "-"));
    }
}
