package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.NodeCondition;
import io.fabric8.kubernetes.api.model.NodeSystemInfo;
import io.fabric8.kubernetes.api.model.Pod;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * What depends on cgroups, systemd, file systems and reboots, on a node that has them as people's nodes do. Containers get
 * GPU and limits by the agent's CDI device.
 */
@Isolated
@LongTier.Only
class VirtualMachineIT extends VirtualMachine {
    /** From the kubelet's end to a container that runs again; 101 s on two idle cores. */
    private static final Duration REBOOT = Duration.ofMinutes(12);

    private static final String REGION = "/usr/local/aliquot/region";
    private static final int SECTOR = 512;

    @Test
    void theNodeIsOfItsKind(Lab lab) {
        String node = lab.virtualMachine();
        NodeSystemInfo info =
                lab.client().nodes().withName(node).get().getStatus().getNodeInfo();

        assertThat(info.getOsImage()).isEqualTo("Debian GNU/Linux 13 (trixie)");
        assertThat(info.getKernelVersion()).startsWith("6.12.");
        assertThat(info.getContainerRuntimeVersion()).isEqualTo("containerd://2.2.0");
        assertThat(lab.onNode(node, "stat", "-fc", "%T", "/sys/fs/cgroup").expectSuccess())
                .isEqualTo("cgroup2fs\n");
        assertThat(lab.kubectl("get", "--raw", "/api/v1/nodes/" + node + "/proxy/configz")
                        .expectSuccess())
                .contains("\"cgroupDriver\":\"systemd\"");
        assertThat(lab.onNode(node, "stat", "-fc", "%T", "/var/lib/aliquot", "/var/lib/kubelet")
                        .expectSuccess())
                .as("the file systems of regions and of the kubelet's checkpoint and volumes")
                .isEqualTo("xfs\nbtrfs\n");
        System.out.printf(
                "%s: kernel %s, %s, %s%n",
                node,
                info.getKernelVersion(),
                lab.onNode(node, "systemctl", "--version")
                        .expectSuccess()
                        .lines()
                        .findFirst()
                        .orElseThrow(),
                info.getContainerRuntimeVersion());
    }

    @Test
    void aContainerThatCoversItsLimitsDoesNotStart(Lab lab, TestNamespace namespace) {
        namespace.create(onMachine(lab, LimitsCheckIT.covering(lab, "covering", "ln -s /etc /x/e", "/x/e")));

        awaitTrue("an event says why", SLOWLY, () -> CdiInjectionIT.isRefusedForItsLimits(namespace, "covering"));
    }

    /**
     * XFS gives a file space beyond its end and many attributes, and the file's length shows neither.
     * {@code RegionGuardTest} has the same without a container.
     */
    @Test
    void aRegionThatItsContainerFillsIsCutAndItsProgramsKeepTheirMemoryAndLimit(Lab lab, TestNamespace namespace) {
        Pod pod = run(namespace, share(lab, "share"));
        hold2000MiB(lab, namespace, pod);
        long usual = blocks(namespace);

        namespace
                .exec("share", "fallocate", "--keep-size", "--length", "200M", REGION)
                .expectSuccess();
        namespace.exec("share", "python3", "-c", """
                        import os, sys
                        for i in range(30):
                            os.setxattr(sys.argv[1], f"user.a{i}", bytes(60_000))
                        """, REGION).expectSuccess();

        awaitTrue(
                "an event on the pod",
                SLOWLY,
                () -> namespace.events("share").stream()
                        .anyMatch(event -> "GpuRegionTooLarge".equals(event.getReason())
                                && event.getMessage().contains("The node's agent has cut it")));
        awaitTrue("its usual size", SLOWLY, () -> blocks(namespace) < usual + MIB / SECTOR);
        assertThat(namespace
                        .exec("share", "python3", "-c", "import os, sys; print(os.listxattr(sys.argv[1]))", REGION)
                        .expectSuccess())
                .isEqualTo("[]\n");
        assertThat(usage(lab, pod, "memoryMiB")).isEqualTo("2256");
        assertThat(namespace
                        .exec("share", "vgpu-sample", "alloc", "800", "alloc", "400")
                        .expectSuccess())
                .contains("alloc 800 MiB: CUDA_ERROR_OUT_OF_MEMORY", "alloc 400 MiB: CUDA_SUCCESS");
    }

    /** The sectors that the region takes on the disk, with its attributes. */
    private static long blocks(TestNamespace namespace) {
        return Long.parseLong(namespace
                .exec("share", "stat", "--format", "%b", REGION)
                .expectSuccess()
                .strip());
    }

    @Test
    void aGpuThatFailsTakesNoSharesUntilItsErrorIsCleared(Lab lab, TestNamespace namespace) {
        String node = lab.virtualMachine();
        int slots = lab.allocatable(node, Resources.VGPU);
        String gpu = Allocations.gpuOf(run(namespace, share(lab, "holder")));
        lab.driver(node, "fail", gpu, "--xid", "48");
        try {
            awaitTrue(
                    "the node's condition",
                    SLOWLY,
                    () -> gpusHealthy(lab)
                            .filter(condition -> condition.getStatus().equals("False")
                                    && condition.getMessage().contains(gpu)
                                    && condition.getMessage().contains("XID 48"))
                            .isPresent());
            awaitTrue("half of the slots", SLOWLY, () -> lab.allocatable(node, Resources.VGPU) == slots / 2);
            awaitTrue(
                    "an event on the pod that holds a share of it",
                    SLOWLY,
                    () -> namespace.events("holder").stream()
                            .anyMatch(event -> "GpuUnhealthy".equals(event.getReason())
                                    && event.getMessage().contains(gpu)));
            assertThat(Allocations.gpuOf(run(namespace, share(lab, "other")))).isNotEqualTo(gpu);
            assertThat(TestNamespace.isRunning(namespace.get("holder"))).isTrue();
        } finally {
            lab.driver(node, "heal", gpu);
            lab.kubectl("annotate", "node", node, Annotations.CLEAR_GPU_ERRORS + "=" + gpu)
                    .expectSuccess();
        }
        awaitTrue(
                "the node's condition",
                SLOWLY,
                () -> gpusHealthy(lab)
                        .filter(condition -> condition.getStatus().equals("True"))
                        .isPresent());
        awaitTrue("all slots", SLOWLY, () -> lab.allocatable(node, Resources.VGPU) == slots);
        lab.kubectl("annotate", "node", node, Annotations.CLEAR_GPU_ERRORS + "-")
                .expectSuccess();
    }

    private static Optional<NodeCondition> gpusHealthy(Lab lab) {
        return lab.client().nodes().withName(lab.virtualMachine()).get().getStatus().getConditions().stream()
                .filter(condition -> condition.getType().equals("AliquotGPUsHealthy"))
                .findFirst();
    }

    /** The container ignores SIGTERM, and outlives its pod by the pod's termination grace period. */
    @Test
    void aShareOfAPodThatWasDeletedByForceIsFreeOnceThePodsCgroupIsGone(Lab lab, TestNamespace namespace) {
        Pod holder = share(lab, "holder", Map.of(Resources.MEMORY, "60000"));
        holder.getSpec().setTerminationGracePeriodSeconds(40L);
        holder.getSpec()
                .getContainers()
                .getFirst()
                .setCommand(List.of("bash", "-c", "trap '' TERM; while :; do sleep 1; done"));
        Pod pod = run(namespace, holder);
        namespace.client().resource(pod).withGracePeriod(0).delete();
        Pod next = share(lab, "next", Map.of(Resources.VGPU, "2", Resources.MEMORY, "60000"));
        namespace.create(next);

        assertThat(namespace.awaitUnschedulable("next")).isNotEmpty();
        assertThat(cgroups(lab, pod)).as("the container still runs").isNotEmpty();
        namespace.await("next", "is bound", SLOWLY, TestNamespace::isBound);
        assertThat(cgroups(lab, pod))
                .as("cgroups when the share was given away")
                .isEmpty();
        namespace.awaitRunning("next", SLOWLY);
    }

    private static String cgroups(Lab lab, Pod pod) {
        String name = "*" + pod.getMetadata().getUid().replace('-', '_') + "*";
        return lab.onNode(pod.getSpec().getNodeName(), "find", "/sys/fs/cgroup", "-name", name)
                .expectSuccess();
    }

    @Test
    void aShareComesBackWithItsLimitsAfterAReboot(Lab lab, TestNamespace namespace) {
        assertComesBack(lab, namespace, () -> lab.onNode(lab.virtualMachine(), "systemctl", "reboot"));
    }

    @Test
    void aShareComesBackWithItsLimitsAfterAPowerFailure(Lab lab, TestNamespace namespace) {
        assertComesBack(lab, namespace, () -> lab.reboot(lab.virtualMachine()));
    }

    /** Runs a Deployment of one share, and {@code reboot} under it. */
    private static void assertComesBack(Lab lab, TestNamespace namespace, Runnable reboot) {
        namespace
                .client()
                .resource(Pods.deployment(share(lab, "share"), 1))
                .inNamespace(namespace.name())
                .create();
        try {
            awaitTrue(
                    "the Deployment's pod runs", SLOWLY, () -> ready(namespace).isPresent());
            String container = containerId(ready(namespace).orElseThrow());
            String boot = bootId(lab);

            Instant begin = Instant.now();
            reboot.run();

            awaitTrue("another boot ID", REBOOT, () -> !bootId(lab).equals(boot));
            Duration booted = Duration.between(begin, Instant.now());
            awaitTrue(
                    "the Deployment has a pod with another container",
                    REBOOT,
                    () -> ready(namespace)
                            .filter(now -> !containerId(now).equals(container))
                            .isPresent());
            System.out.printf(
                    "%s: the kubelet reported the boot after %s, a share ran again after %s%n",
                    lab.virtualMachine(), booted, Duration.between(begin, Instant.now()));
            assertIsLimited(
                    namespace, ready(namespace).orElseThrow().getMetadata().getName());
            Allocations.expectNoGpuOverCapacity(lab);
        } finally {
            namespace
                    .client()
                    .apps()
                    .deployments()
                    .inNamespace(namespace.name())
                    .delete();
        }
    }

    private static Optional<Pod> ready(TestNamespace namespace) {
        return namespace.client().pods().inNamespace(namespace.name()).list().getItems().stream()
                .filter(TestNamespace::isReady)
                .findFirst();
    }

    private static String containerId(Pod pod) {
        return pod.getStatus().getContainerStatuses().getFirst().getContainerID();
    }

    private static String bootId(Lab lab) {
        return lab.client()
                .nodes()
                .withName(lab.virtualMachine())
                .get()
                .getStatus()
                .getNodeInfo()
                .getBootID();
    }

    /** The kubelet admits the bound pod as if its resource were no device plugin's. */
    @Test
    void aPodThatStartsWithoutAllocateAfterAPowerFailureHasNoGpu(Lab lab, TestNamespace namespace) {
        String node = lab.virtualMachine();
        Pod pod = run(namespace, share(lab, "share"));
        lab.onNode(node, "systemctl", "stop", "kubelet").expectSuccess();
        lab.onNode(node, "rm", WithoutAllocateIT.CHECKPOINT).expectSuccess();
        lab.onNode(node, "sync").expectSuccess();
        lab.reboot(node);

        CdiInjectionIT.expectNoGpu(namespace, pod);
        Allocations.expectNoGpuOverCapacity(lab);
    }
}
