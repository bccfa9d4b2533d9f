package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * A share on the virtual machine, whose containers have cgroups of systemd's, is limited and attributed. A subclass runs the
 * tests with one way of giving containers their GPU. {@code ./aliquot test --long vm} runs them; they need
 * {@code ./aliquot vm up}.
 */
@ExtendWith(LabExtension.class)
abstract class VirtualMachine {
    /** Without the processor's virtualization all in the machine takes some ten times as long as beside it. */
    static final Duration SLOWLY = Duration.ofMinutes(5);

    private static final int CORES = 30;
    private static final Map<String, String> LIMITS =
            Map.of(Resources.MEMORY, "3000", Resources.CORES, Integer.toString(CORES));
    static final int MIB = 1 << 20;

    @Test
    void aShareIsLimitedAndItsMemoryIsThatOfItsContainer(Lab lab, TestNamespace namespace) {
        Pod pod = run(namespace, share(lab, "share"));
        assertIsLimited(namespace, "share");

        hold2000MiB(lab, namespace, pod);

        assertThat(used(lab, pod)).isEqualTo(2256.0 * MIB);
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

    static String usage(Lab lab, Pod pod, String figure) {
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
        hold2000MiB(lab, namespace, running);
    }

    /** Starts a program, whose process ID is in /tmp/started, and waits until its memory and context are known. */
    static void hold2000MiB(Lab lab, TestNamespace namespace, Pod pod) {
        namespace
                .exec(
                        pod.getMetadata().getName(),
                        "bash",
                        "-c",
                        "nohup vgpu-sample alloc 2000 hold > /dev/null 2>&1 & echo $! > /tmp/started")
                .expectSuccess();
        awaitTrue(
                "2000 MiB and a context in gpushares",
                SLOWLY,
                () -> usage(lab, pod, "memoryMiB").equals("2256"));
    }

    static Pod run(TestNamespace namespace, Pod pod) {
        namespace.create(pod);
        return namespace.awaitRunning(pod.getMetadata().getName(), SLOWLY);
    }

    static Pod share(Lab lab, String name) {
        return share(lab, name, LIMITS);
    }

    static Pod share(Lab lab, String name, Map<String, String> limits) {
        return onMachine(lab, Pods.withLimits(lab, name, limits));
    }

    static Pod onMachine(Lab lab, Pod pod) {
        return new PodBuilder(Pods.onNode(pod, lab.virtualMachine()))
                .editSpec()
                .addNewToleration()
                .withKey("nvidia.com/gpu")
                .withOperator("Exists")
                .endToleration()
                .endSpec()
                .build();
    }

    static void assertIsLimited(TestNamespace namespace, String pod) {
        assertThat(namespace.exec(pod, "nvidia-smi").expectSuccess()).contains("0MiB / 3000MiB");
        assertThat(namespace
                        .exec(pod, "vgpu-sample", "alloc", "2700", "alloc", "200")
                        .expectSuccess())
                .contains("alloc 2700 MiB: CUDA_SUCCESS", "alloc 200 MiB: CUDA_ERROR_OUT_OF_MEMORY");
    }
}
