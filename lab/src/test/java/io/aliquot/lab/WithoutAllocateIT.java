package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.ContainerBuilder;
import io.fabric8.kubernetes.api.model.ContainerStatus;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.node.v1.RuntimeClassBuilder;
import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * What starts containers of shares other than a new pod: none runs without its limits for longer than half a minute. Takes
 * six minutes.
 */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class WithoutAllocateIT {
    static final String CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";
    private static final Duration IN_TIME = Duration.ofSeconds(30);
    private static final Duration REBOOT = Duration.ofMinutes(2);

    /** Between two looks of an agent at a container at most. */
    private static final Duration LOOK = Duration.ofSeconds(31);

    private static final String OWN_SHARE = "0MiB / 2000MiB";
    private static final String COVERED = "GpuLimitsCovered";

    /**
     * The kubelet admits the bound pod as if its resource were no device plugin's. No process of the container uses the GPU.
     * {@link CdiInjectionIT} has what happens where the GPU comes with its limits.
     */
    @Test
    void aPodThatStartsWithoutAllocateAfterARebootIsEnded(Lab lab, TestNamespace namespace) {
        String node = lab.node(NodeKind.DEFAULT_RUNTIME);
        namespace.run(share(lab, "share", node));
        namespace.run(Pods.onNode(Pods.withoutGpu(lab, "other"), node));
        lab.kill(node + "/kubelet");
        lab.onNode(node, "rm", CHECKPOINT).expectSuccess();
        lab.reboot(node);

        awaitTrue("an event about the share's limits", REBOOT, () -> hasEvent(namespace, "share", COVERED));
        Instant noticed = Instant.now();
        awaitTrue(
                "the pod is ended",
                IN_TIME,
                () -> namespace
                                .client()
                                .pods()
                                .inNamespace(namespace.name())
                                .withName("share")
                                .get()
                        == null);
        Instant agent = started(TestNamespace.containerStatus(lab.agentOf(node), "device-plugin"));
        System.out.printf(
                "without the device checkpoint a pod was found %s after the start of its node's agent%n",
                Duration.between(agent, noticed));
        assertThat(Duration.between(agent, noticed)).isLessThan(IN_TIME);
        namespace.awaitRunning("other", EVENTUALLY);
        assertThat(hasEvent(namespace, "other", COVERED)).isFalse();
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    void aContainerThatRestartsWithoutTheAgentHasItsLimits(Lab lab, TestNamespace namespace) throws Exception {
        String node = lab.nodes().getFirst();
        namespace.run(share(lab, "share", node));
        String nowhere = "{\"spec\":{\"template\":{\"spec\":{\"nodeSelector\":{\"aliquot.io/test\":%s}}}}}";
        patchAgents(lab, nowhere.formatted("\"nowhere\""));
        try {
            awaitTrue(
                    "no agent",
                    EVENTUALLY,
                    () -> lab.componentPods("device-plugin").isEmpty());
            restart(lab, namespace, node, Pods.MAIN);
            assertThat(namespace.exec("share", "nvidia-smi").expectSuccess()).contains(OWN_SHARE);
        } finally {
            patchAgents(lab, nowhere.formatted("null"));
            lab.awaitAgents();
        }
        assertIsLeftAlone(namespace);
    }

    @ParameterizedTest
    @EnumSource(
            value = NodeKind.class,
            names = {"DEFAULT_RUNTIME", "CDI"})
    void aContainerThatRestartsAfterItsContainerRuntimeHasItsLimits(NodeKind kind, Lab lab, TestNamespace namespace)
            throws Exception {
        String node = lab.node(kind);
        namespace.run(share(lab, "share", node));
        lab.kill(node + "/containerd");
        lab.start(node + "/containerd");
        restart(lab, namespace, node, Pods.MAIN);
        assertThat(namespace.exec("share", "nvidia-smi").expectSuccess()).contains(OWN_SHARE);
        assertIsLeftAlone(namespace);
    }

    /** As one of another version: the kubelet goes on without it. */
    @Test
    void aContainerThatRestartsAfterItsKubeletHasReadADamagedCheckpointHasItsLimits(Lab lab, TestNamespace namespace)
            throws Exception {
        String node = lab.nodes().getFirst();
        namespace.run(share(lab, "share", node));
        lab.kill(node + "/kubelet");
        lab.onNode(node, "bash", "-c", "echo '{\"Data\":{},\"Checksum\":1}' > " + CHECKPOINT)
                .expectSuccess();
        lab.start(node + "/kubelet");
        lab.awaitAgents();
        restart(lab, namespace, node, Pods.MAIN);
        assertThat(namespace.exec("share", "nvidia-smi").expectSuccess()).contains(OWN_SHARE);
        assertIsLeftAlone(namespace);
    }

    /** The sidecar restarts in place; the init container runs again when the kubelet has made another sandbox for the pod. */
    @Test
    void initContainersAndSidecarsThatRunAgainHaveTheirLimits(Lab lab, TestNamespace namespace) throws Exception {
        String node = lab.nodes().getFirst();
        Pod pod = share(lab, "share", node);
        Container main = pod.getSpec().getContainers().getFirst();
        Container init = new ContainerBuilder(main)
                .withName("init")
                .withCommand("bash", "-c", "nvidia-smi >> /shared/runs")
                .addNewVolumeMount()
                .withName("shared")
                .withMountPath("/shared")
                .endVolumeMount()
                .build();
        Container sidecar = new ContainerBuilder(main)
                .withName("sidecar")
                .withRestartPolicy("Always")
                .build();
        namespace.run(pod.edit()
                .editSpec()
                .withInitContainers(init, sidecar)
                .editFirstContainer()
                .addNewVolumeMount()
                .withName("shared")
                .withMountPath("/shared")
                .endVolumeMount()
                .endContainer()
                .addNewVolume()
                .withName("shared")
                .withNewEmptyDir()
                .endEmptyDir()
                .endVolume()
                .endSpec()
                .build());
        restart(lab, namespace, node, "sidecar");
        assertThat(namespace.execIn("share", "sidecar", "nvidia-smi").expectSuccess())
                .contains(OWN_SHARE);

        String before = status(namespace, Pods.MAIN).getContainerID();
        String uid = namespace.get("share").getMetadata().getUid();
        String sandbox = lab.onNode(
                        node,
                        "ctr",
                        "--namespace",
                        "k8s.io",
                        "containers",
                        "list",
                        "--quiet",
                        "labels.\"io.kubernetes.pod.uid\"==" + uid + ",labels.\"io.cri-containerd.kind\"==sandbox")
                .expectSuccess()
                .strip();
        lab.killContainer(node, sandbox);
        awaitTrue(
                "all containers run again",
                EVENTUALLY,
                () -> TestNamespace.isReady(namespace.get("share"))
                        && !status(namespace, Pods.MAIN).getContainerID().equals(before));
        assertThat(namespace
                        .exec("share", "grep", "-c", OWN_SHARE, "/shared/runs")
                        .expectSuccess())
                .isEqualToIgnoringWhitespace("2");
        assertThat(namespace.execIn("share", "sidecar", "nvidia-smi").expectSuccess())
                .contains(OWN_SHARE);
        assertIsLeftAlone(namespace);
    }

    @Test
    void aContainerThatAnotherRuntimeHasStartedGetsAnEvent(Lab lab, TestNamespace namespace) {
        var plain = new RuntimeClassBuilder()
                .withNewMetadata()
                .withName("plain-" + namespace.name())
                .endMetadata()
                .withHandler("runc")
                .build();
        lab.client().resource(plain).create();
        try {
            namespace.run(share(lab, "share", lab.nodes().getFirst())
                    .edit()
                    .editSpec()
                    .withRuntimeClassName(plain.getMetadata().getName())
                    .endSpec()
                    .build());
            awaitTrue("an event about the runtime", IN_TIME, () -> hasEvent(namespace, "share", "GpuNotVisible"));
            assertThat(hasEvent(namespace, "share", COVERED)).isFalse();
            assertThat(namespace.get("share").getMetadata().getDeletionTimestamp())
                    .isNull();
        } finally {
            lab.client().resource(plain).delete();
        }
    }

    private static Pod share(Lab lab, String name, String node) {
        return Pods.onNode(Pods.withGpuMemory(lab, name, 2000), node);
    }

    private static void patchAgents(Lab lab, String patch) {
        lab.kubectl("patch", "daemonset", "aliquot-device-plugin", "--namespace", Lab.NAMESPACE, "--patch", patch)
                .expectSuccess();
    }

    /** Kills a container of the pod {@code share}, and waits until it runs again. */
    static void restart(Lab lab, TestNamespace namespace, String node, String container) {
        ContainerStatus before = status(namespace, container);
        lab.killContainer(node, before.getContainerID());
        awaitTrue("the container runs again", EVENTUALLY, () -> {
            ContainerStatus now = status(namespace, container);
            return now.getRestartCount() > before.getRestartCount()
                    && now.getState().getRunning() != null;
        });
    }

    private static ContainerStatus status(TestNamespace namespace, String container) {
        var status = namespace.get("share").getStatus();
        return Stream.concat(status.getContainerStatuses().stream(), status.getInitContainerStatuses().stream())
                .filter(one -> one.getName().equals(container))
                .findFirst()
                .orElseThrow();
    }

    private static Instant started(ContainerStatus status) {
        return Instant.parse(status.getState().getRunning().getStartedAt());
    }

    /** For as long as its node's agent may take to look at it. */
    private static void assertIsLeftAlone(TestNamespace namespace) throws InterruptedException {
        TimeUnit.MILLISECONDS.sleep(LOOK.toMillis());
        assertThat(hasEvent(namespace, "share", COVERED)).isFalse();
        assertThat(namespace.get("share").getMetadata().getDeletionTimestamp()).isNull();
    }

    private static boolean hasEvent(TestNamespace namespace, String pod, String reason) {
        return namespace.events(pod).stream().anyMatch(event -> reason.equals(event.getReason()));
    }
}
