package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.PROMPTLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.pods.Vgpu;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * etcd is restored from a backup, as docs/troubleshooting.md says, under pods that run and one that is Pending: 2 to 4 minutes.
 * The backup is from a time at which a node took no pods, and does not have what was created, bound and deleted since.
 */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class EtcdRestoreIT {
    /** From the last of the restarts until a node takes pods. */
    private static final Duration BACK = Duration.ofSeconds(60);

    private static final Duration RESTART = Duration.ofMinutes(5);

    /** Two such shares do not fit on a GPU of the lab, and both GPUs of a node have one. */
    private static final int MOST_MIB = 60000;

    @Test
    void noGpuIsOverCapacityAndAllNodesTakePods(Lab lab, TestNamespace namespace, @TempDir Path backup) {
        String node = lab.nodes().getFirst();
        String other = lab.nodes().getLast();
        for (String each : lab.nodes()) {
            namespace.run(Pods.onNode(holding(lab, "kept-" + each, 3000, 2000), each));
        }
        namespace.run(Pods.onNode(holding(lab, "deleted", 5000, 4000), other));
        lab.kill(node + "/kubelet");
        eventually(() -> !conflict(lab, node).isEmpty());
        namespace.create(Pods.onNode(holding(lab, "unbound", 4000, 3000), node));
        namespace.awaitUnschedulable("unbound");
        lab.kill("etcd");
        copy(etcd(lab), backup.resolve("etcd"));
        lab.start("etcd", node + "/kubelet");
        eventually(() -> conflict(lab, node).isEmpty());

        Pod unbound = awaitEventually(namespace, "unbound");
        namespace.delete("deleted");
        List<Pod> forgotten = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            forgotten.add(namespace.run(Pods.onNode(holding(lab, "forgotten-" + i, MOST_MIB, 50000), node)));
        }
        restore(lab, backup.resolve("etcd"));
        List<String> nextNames = List.of("next-0", "next-1");
        for (String name : nextNames) {
            eventually(() -> created(namespace, Pods.onNode(holding(lab, name, MOST_MIB, 50000), node)));
        }
        String[] kubelets = lab.nodes().stream().map(each -> each + "/kubelet").toArray(String[]::new);
        lab.kill(kubelets);
        lab.start(kubelets);
        eventually(() -> holdsDeleted(lab));
        awaitTrue("the forgotten shares are free", RESTART, () -> {
            expectRoomForWhatRuns(lab, node, forgotten, namespace, nextNames);
            return quietly(() -> !holdsDeleted(lab));
        });
        restartScheduler(lab);

        long restarted = System.nanoTime();
        awaitTrue("the nodes take pods", BACK, () -> {
            expectRoomForWhatRuns(lab, node, forgotten, namespace, nextNames);
            return quietly(() -> lab.nodes().stream().allMatch(each -> takesPods(lab, namespace, each)));
        });
        System.out.printf(
                "etcd restored: all nodes take pods %d s after the last restart%n",
                Duration.ofNanos(System.nanoTime() - restarted).toSeconds());
        nextNames.forEach(name -> awaitEventually(namespace, name));

        assertThat(awaitEventually(namespace, "unbound").getMetadata().getUid())
                .isEqualTo(unbound.getMetadata().getUid());
        // The kubelet, which restarts, may reject it as after a reboot.
        assertThat(namespace.get("deleted"))
                .matches(pod -> TestNamespace.isRunning(pod)
                        || "UnexpectedAdmissionError".equals(pod.getStatus().getReason()));
        for (String each : lab.nodes()) {
            assertThat(namespace
                            .exec("kept-" + each, "vgpu-sample", "alloc", "600", "alloc", "480")
                            .expectSuccess()
                            .lines())
                    .containsExactly("alloc 600 MiB: CUDA_ERROR_OUT_OF_MEMORY", "alloc 480 MiB: CUDA_SUCCESS");
        }
        Allocations.expectNoGpuOverCapacity(lab);
    }

    /** What docs/troubleshooting.md says: the API server is stopped meanwhile, and what watches it is restarted. */
    private static void restore(Lab lab, Path backup) {
        String[] controlPlane = {"kube-apiserver", "kube-controller-manager", "kube-scheduler"};
        lab.kill(controlPlane);
        lab.kill("etcd");
        Lab.execute(EVENTUALLY, List.of("rm", "-r", etcd(lab).toString())).expectSuccess();
        copy(backup, etcd(lab));
        lab.start("etcd");
        lab.start(controlPlane);
        eventually(() -> lab.kubectl("get", "--raw", "/readyz").exit() == 0);
    }

    private static void restartScheduler(Lab lab) {
        lab.kubectl("-n", Lab.NAMESPACE, "rollout", "restart", "deployment/aliquot-scheduler")
                .expectSuccess();
        awaitTrue(
                "the scheduler has restarted",
                RESTART,
                () -> lab.kubectl(
                                        "-n",
                                        Lab.NAMESPACE,
                                        "rollout",
                                        "status",
                                        "deployment/aliquot-scheduler",
                                        "--timeout=60s")
                                .exit()
                        == 0);
    }

    /** Whether shares of pods that the API server does not have are held. */
    private static boolean holdsDeleted(Lab lab) {
        return lab.kubectl("get", "gpunodes", "-o", "yaml").expectSuccess().contains("state: lingering");
    }

    private static Path etcd(Lab lab) {
        return lab.root().resolve(".lab/etcd");
    }

    private static void copy(Path from, Path to) {
        Lab.execute(EVENTUALLY, List.of("cp", "-a", from.toString(), to.toString()))
                .expectSuccess();
    }

    private static String conflict(Lab lab, String node) {
        return Allocations.inventory(lab, node).conflict();
    }

    /** Whether a small pod has been created on the node and runs. */
    private static boolean takesPods(Lab lab, TestNamespace namespace, String node) {
        String name = "small-" + node;
        if (namespace
                        .client()
                        .pods()
                        .inNamespace(namespace.name())
                        .withName(name)
                        .get()
                == null) {
            namespace.create(Pods.onNode(Pods.withGpuMemory(lab, name, 1000), node));
        }
        return conflict(lab, node).isEmpty() && TestNamespace.isRunning(namespace.get(name));
    }

    /** A pod that is bound to a GPU, beside one that the API server has forgotten and whose processes may still use it. */
    private static void expectRoomForWhatRuns(
            Lab lab, String node, List<Pod> forgotten, TestNamespace namespace, List<String> names) {
        List<Pod> bound = new ArrayList<>();
        boolean known = quietly(() -> bound.addAll(names.stream()
                .map(namespace::get)
                .filter(TestNamespace::isBound)
                .toList()));
        if (!known) {
            return;
        }
        String cgroups =
                lab.onNode(node, "find", "/sys/fs/cgroup", "-name", "*pod*").out();
        for (Pod pod : forgotten) {
            String uid = pod.getMetadata().getUid();
            boolean runs = Stream.of(uid, uid.replace('-', '_')).anyMatch(cgroups::contains);
            String gpu = Allocations.gpuOf(pod);
            assertThat(bound)
                    .as("pods beside the forgotten one on GPU %s, which has %s", gpu, runs ? "a cgroup" : "none")
                    .noneMatch(next -> runs
                            && Allocations.of(next, Pods.MAIN).stream()
                                    .map(Vgpu::uuid)
                                    .anyMatch(gpu::equals));
        }
    }

    private static boolean created(TestNamespace namespace, Pod pod) {
        namespace.create(pod);
        return true;
    }

    private static Pod awaitEventually(TestNamespace namespace, String name) {
        return namespace.awaitRunning(name, EVENTUALLY.plus(PROMPTLY));
    }

    private static void eventually(BooleanSupplier condition) {
        awaitTrue("what the test waits for", EVENTUALLY, () -> quietly(condition));
    }

    /** An API server that does not answer yet, or a webhook, is no failure. */
    private static boolean quietly(BooleanSupplier condition) {
        try {
            return condition.getAsBoolean();
        } catch (KubernetesClientException e) {
            return false;
        }
    }

    /** A pod whose program allocates {@code held} MiB of its limit and keeps them. */
    private static Pod holding(Lab lab, String name, int limit, int held) {
        return Pods.withGpuMemory(lab, name, limit)
                .edit()
                .editSpec()
                .editFirstContainer()
                .withCommand("vgpu-sample", "alloc", Integer.toString(held), "hold")
                .endContainer()
                .endSpec()
                .build();
    }
}
