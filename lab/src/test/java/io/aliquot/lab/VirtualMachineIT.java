package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.NodeSystemInfo;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * What depends on cgroups, systemd, user namespaces and reboots, on a node that has them as people's nodes do: the virtual
 * machine. {@code ./aliquot test --long vm} runs it; it needs {@code ./aliquot vm up}.
 */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class VirtualMachineIT {
    /** Without the processor's virtualization all in the machine takes some ten times as long as beside it. */
    private static final Duration SLOWLY = Duration.ofMinutes(5);

    /** From the kubelet's end to a container that runs again; 101 s on two idle cores. */
    private static final Duration REBOOT = Duration.ofMinutes(12);

    private static final int CORES = 30;
    private static final Map<String, String> LIMITS =
            Map.of(Resources.MEMORY, "3000", Resources.CORES, Integer.toString(CORES));
    private static final double MIB = 1 << 20;

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
    void aShareIsLimitedAndItsMemoryIsThatOfItsContainer(Lab lab, TestNamespace namespace) {
        Pod pod = run(namespace, share(lab, "share"));
        assertIsLimited(namespace, "share");

        namespace
                .exec(
                        "share",
                        "bash",
                        "-c",
                        "nohup vgpu-sample alloc 2000 hold > /dev/null 2>&1 & echo $! > /tmp/started")
                .expectSuccess();

        awaitTrue(
                "2000 MiB and a context in gpushares",
                SLOWLY,
                () -> usage(lab, pod, "memoryMiB").equals("2256"));
        assertThat(used(lab, pod)).isEqualTo(2256 * MIB);
        assertThat(UsageIT.value(lab, pod, "aliquot_container_processes")).hasValue(1);
        String process = lab.onNode(pod.getSpec().getNodeName(), "pidof", "vgpu-sample")
                .expectSuccess()
                .strip();
        assertThat(lab.onNode(pod.getSpec().getNodeName(), "cat", "/proc/" + process + "/cgroup")
                        .expectSuccess())
                .as("a slice of systemd's for the pod, a scope for the container")
                .matches("0::/kubepods\\.slice/.*-pod"
                        + pod.getMetadata().getUid().replace('-', '_')
                        + "\\.slice/cri-containerd-[0-9a-f]{64}\\.scope\n");
        namespace.exec("share", "bash", "-c", "kill -KILL $(cat /tmp/started)").expectSuccess();
        awaitTrue("0 after a SIGKILL", SLOWLY, () -> used(lab, pod) == 0);
    }

    private static double used(Lab lab, Pod pod) {
        return List.of("charged", "unattributed").stream()
                .mapToDouble(
                        kind -> UsageIT.value(lab, pod, "aliquot_container_memory_used_bytes", "kind=\"" + kind + "\"")
                                .orElse(-1))
                .sum();
    }

    @Test
    void aSharesKernelsGetItsCores(Lab lab, TestNamespace namespace) {
        Pod pod = run(namespace, share(lab, "busy"));

        namespace
                .exec("busy", "sh", "-c", "nohup vgpu-sample busy 600 > /tmp/busy 2>&1 &")
                .expectSuccess();

        awaitTrue("a utilization of " + CORES + " % in gpushares", SLOWLY, () -> {
            String percent = usage(lab, pod, "utilizationPercent");
            return !percent.isEmpty() && Math.abs(Integer.parseInt(percent) - CORES) <= 5;
        });
    }

    private static String usage(Lab lab, Pod pod, String figure) {
        return lab.kubectl(
                        "get",
                        "gpushare",
                        pod.getMetadata().getName(),
                        "--namespace",
                        pod.getMetadata().getNamespace(),
                        "--output",
                        "jsonpath={.status.usage." + figure + "}")
                .expectSuccess();
    }

    @Test
    void aContainerThatCoversItsLimitsDoesNotStart(Lab lab, TestNamespace namespace) {
        namespace.create(onMachine(lab, LimitsCheckIT.covering(lab, "covering", "ln -s /etc /x/e", "/x/e")));

        awaitTrue("an event says why", SLOWLY, () -> CdiInjectionIT.isRefusedForItsLimits(namespace, "covering"));
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
    void aPodWithAUserNamespaceOfItsOwnIsLimited(Lab lab, TestNamespace namespace) {
        assertThat(lab.client().nodes().withName(lab.virtualMachine()).get().getStatus().getRuntimeHandlers().stream()
                        .filter(handler -> "nvidia".equals(handler.getName()))
                        .map(handler -> handler.getFeatures().getUserNamespaces()))
                .containsExactly(true);
        Pod pod = share(lab, "user");
        pod.getSpec().setHostUsers(false);
        Pod running = run(namespace, pod);

        assertThat(namespace
                        .exec("user", "cat", "/proc/self/uid_map")
                        .expectSuccess()
                        .strip())
                .as("root of the container is another user of the node")
                .matches("0 +[1-9][0-9]* +65536");
        assertIsLimited(namespace, "user");
        namespace
                .exec("user", "bash", "-c", "nohup vgpu-sample alloc 2000 hold > /dev/null 2>&1 &")
                .expectSuccess();
        awaitTrue(
                "2000 MiB and a context in gpushares",
                SLOWLY,
                () -> usage(lab, running, "memoryMiB").equals("2256"));
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

    private static Pod run(TestNamespace namespace, Pod pod) {
        namespace.create(pod);
        return namespace.awaitRunning(pod.getMetadata().getName(), SLOWLY);
    }

    private static Pod share(Lab lab, String name) {
        return share(lab, name, LIMITS);
    }

    private static Pod share(Lab lab, String name, Map<String, String> limits) {
        return onMachine(lab, Pods.withLimits(lab, name, limits));
    }

    private static Pod onMachine(Lab lab, Pod pod) {
        return new PodBuilder(Pods.onNode(pod, lab.virtualMachine()))
                .editSpec()
                .addNewToleration()
                .withKey("nvidia.com/gpu")
                .withOperator("Exists")
                .endToleration()
                .endSpec()
                .build();
    }

    private static void assertIsLimited(TestNamespace namespace, String pod) {
        assertThat(namespace.exec(pod, "nvidia-smi").expectSuccess()).contains("0MiB / 3000MiB");
        assertThat(namespace
                        .exec(pod, "vgpu-sample", "alloc", "2700", "alloc", "200")
                        .expectSuccess())
                .contains("alloc 2700 MiB: CUDA_SUCCESS", "alloc 200 MiB: CUDA_ERROR_OUT_OF_MEMORY");
    }
}
