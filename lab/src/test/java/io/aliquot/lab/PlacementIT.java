package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.PROMPTLY;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.pods.Vgpu;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.batch.v1.JobBuilder;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Which GPU a pod gets, and what happens to pods that fit nowhere. */
@ExtendWith(LabExtension.class)
class PlacementIT {
    @Test
    void aPodThatRequests3000MebibytesAnd30PercentRuns(Lab lab, TestNamespace namespace) {
        namespace.create(Pods.withLimits(
                lab, "first", Map.of(Resources.VGPU, "1", Resources.MEMORY, "3000", Resources.CORES, "30")));

        Pod pod = namespace.awaitRunning("first", PROMPTLY);

        assertThat(Allocations.of(pod, Pods.MAIN)).singleElement().satisfies(vgpu -> {
            assertThat(vgpu.memoryMiB()).isEqualTo(3000);
            assertThat(vgpu.cores()).isEqualTo(30);
            assertThat(vgpu.exclusive()).isFalse();
        });
        assertThat(namespace.exec("first", "cat", "/etc/aliquot/vgpu").expectSuccess())
                .as("the limit file")
                .isEqualTo(namespace.annotation("first", Annotations.vgpu(Pods.MAIN)));
    }

    @Test
    void binpackPutsTenPodsOnAGpuAndTheEleventhOnAnother(Lab lab, TestNamespace namespace) {
        List<Pod> pods =
                createInSequence(namespace, 11, name -> withPolicy(Pods.withGpuMemory(lab, name, 8000), "binpack"));

        assertThat(Allocations.podsPerGpu(pods).values()).containsExactlyInAnyOrder(10, 1);
    }

    @Test
    @LongTier.Only
    void spreadPutsElevenPodsOnBothGpus(Lab lab, TestNamespace namespace) {
        List<Pod> pods =
                createInSequence(namespace, 11, name -> withPolicy(Pods.withGpuMemory(lab, name, 8000), "spread"));

        assertThat(Allocations.podsPerGpu(pods).values()).containsExactlyInAnyOrder(6, 5);
    }

    @Test
    @LongTier.Only
    void onANodeWithMoreSlotsMemoryAloneLimitsThePodsOfAGpu(Lab lab, TestNamespace namespace) {
        String node = namespace.node();
        setSlots(lab, node, "20");
        try {
            List<Pod> pods = createInSequence(
                    namespace,
                    12,
                    name -> withPolicy(Pods.onNode(Pods.withGpuMemory(lab, name, 7000), node), "binpack"));

            assertThat(Allocations.podsPerGpu(pods).values()).containsExactlyInAnyOrder(11, 1);
        } finally {
            namespace.deleteAllPods();
            setSlots(lab, node, "10");
            lab.kubectl("annotate", "node", node, Annotations.SLOTS + "-").expectSuccess();
        }
    }

    @Test
    void aPodWithTwoVgpusGetsTwoGpusOfOneNode(Lab lab, TestNamespace namespace) {
        Pod pod = namespace.run(Pods.withLimits(lab, "two", Map.of(Resources.VGPU, "2", Resources.MEMORY, "3000")));

        List<String> uuids =
                Allocations.of(pod, Pods.MAIN).stream().map(Vgpu::uuid).toList();
        assertThat(uuids).hasSize(2).doesNotHaveDuplicates();
        assertThat(Allocations.inventory(lab, node(pod)).gpus())
                .extracting(gpu -> gpu.uuid())
                .containsAll(uuids);
        assertThat(namespace.exec("two", "nvidia-smi", "-L").expectSuccess()).contains(uuids);
    }

    @Test
    @LongTier.Only
    void aPodThatRequiresTwoGpusInOneNumaDomainIsPendingAndOneThatPrefersThemRuns(Lab lab, TestNamespace namespace) {
        Pod two = Pods.withLimits(lab, "required", Map.of(Resources.VGPU, "2", Resources.MEMORY, "3000"));
        namespace.create(Pods.withAnnotations(two, Map.of(Annotations.NUMA, "required")));
        assertThat(namespace.awaitUnschedulable("required")).contains("no NUMA domain with 2 such GPUs");

        two.getMetadata().setName("preferred");
        Pod pod = namespace.run(Pods.withAnnotations(two, Map.of(Annotations.NUMA, "preferred")));

        assertThat(Allocations.of(pod, Pods.MAIN)).hasSize(2);
    }

    @Test
    @LongTier.Only
    void aNodeForWholeCardsOnlyTakesNoSharesUntilItsLabelIsRemoved(Lab lab, TestNamespace namespace) {
        String node = namespace.node();
        lab.kubectl("label", "node", node, Labels.SHARE + "=exclusive").expectSuccess();
        try {
            namespace.create(Pods.onNode(Pods.withGpuMemory(lab, "share", 1000), node));
            assertThat(namespace.awaitUnschedulable("share")).contains("gives whole cards only");
            namespace.run(Pods.onNode(Pods.withLimits(lab, "whole", Map.of(Resources.VGPU, "1")), node));
        } finally {
            lab.kubectl("label", "node", node, Labels.SHARE + "-").expectSuccess();
        }
        namespace.awaitRunning("share", PROMPTLY);
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    @LongTier.Only
    void aPodWithThreeVgpusIsUnschedulableOnNodesWithTwoGpus(Lab lab, TestNamespace namespace) {
        namespace.create(Pods.withLimits(lab, "three", Map.of(Resources.VGPU, "3", Resources.MEMORY, "3000")));

        String message = namespace.awaitUnschedulable("three");

        assertThat(message).contains("requests 3 vGPUs");
        assertThat(namespace.describe("three")).contains(message);
    }

    @Test
    @LongTier.Only
    void aPendingPodSaysWhyAndIsBoundSoonAfterCapacityIsFreed(Lab lab, TestNamespace namespace) {
        for (int i = 0; i < 2; i++) {
            namespace.create(Pods.withLimits(lab, "whole-" + i, Map.of(Resources.VGPU, "1")));
        }
        for (int i = 0; i < 2; i++) {
            namespace.awaitRunning("whole-" + i, EVENTUALLY);
        }
        namespace.create(Pods.withGpuMemory(lab, "pending", 3000));
        assertThat(namespace.awaitUnschedulable("pending")).contains("1 no GPU with 3000 MiB free");

        namespace.delete("whole-1");

        namespace.await("pending", "is bound", PROMPTLY, TestNamespace::isBound);
        namespace.awaitRunning("pending", EVENTUALLY);
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    void aWholeCardIsSharedWithNoOtherPod(Lab lab, TestNamespace namespace) {
        Pod whole = namespace.run(Pods.withLimits(lab, "whole", Map.of(Resources.VGPU, "1")));
        List<Pod> shares =
                createInSequence(namespace, 3, name -> Pods.onNode(Pods.withGpuMemory(lab, name, 1000), node(whole)));

        assertThat(Allocations.of(whole, Pods.MAIN)).singleElement().satisfies(vgpu -> {
            assertThat(vgpu.exclusive()).isTrue();
            assertThat(vgpu.memoryMiB()).isEqualTo(81920);
        });
        assertThat(shares).extracting(Allocations::gpuOf).doesNotContain(Allocations.gpuOf(whole));
    }

    @Test
    @LongTier.Only
    void aCordonedGpuGetsNoPodsAfterASecondAndGetsThemAgainOnceUncordoned(Lab lab, TestNamespace namespace)
            throws InterruptedException {
        String node = namespace.node();
        String cordoned = Allocations.gpuOf(namespace.run(Pods.onNode(Pods.withGpuMemory(lab, "first", 1000), node)));
        lab.kubectl("annotate", "node", node, Annotations.CORDON_GPUS + "=" + cordoned)
                .expectSuccess();
        try {
            TimeUnit.SECONDS.sleep(1);
            // without the cordon, binpack would put the second pod on the first one's GPU
            Pod second = withPolicy(Pods.onNode(Pods.withGpuMemory(lab, "second", 1000), node), "binpack");
            assertThat(Allocations.gpuOf(namespace.run(second))).isNotEqualTo(cordoned);
            namespace.create(Pods.onNode(
                    Pods.withLimits(lab, "pending", Map.of(Resources.VGPU, "2", Resources.MEMORY, "1000")), node));
            namespace.awaitUnschedulable("pending");
        } finally {
            lab.kubectl("annotate", "node", node, Annotations.CORDON_GPUS + "-").expectSuccess();
        }
        assertThat(Allocations.of(namespace.awaitRunning("pending", PROMPTLY), Pods.MAIN))
                .extracting(Vgpu::uuid)
                .contains(cordoned);
    }

    @Test
    void scalingTakesEffectAtOnceAndPendingPodsRunOnceItIsRemoved(Lab lab, TestNamespace namespace) {
        String node = namespace.node();
        // Scales down: after scaling up, the node's totals would not decrease again, and other tests check them.
        var half = new Scaling(50);
        try {
            lab.kubectl(
                            "annotate",
                            "node",
                            node,
                            Annotations.MEMORY_SCALING + "=" + half.print(),
                            Annotations.CORE_SCALING + "=" + half.print())
                    .expectSuccess();
            TestNamespace.awaitTrue(
                    "the inventory shows the scaling",
                    PROMPTLY,
                    () -> Allocations.inventory(lab, node).memoryScaling().equals(half)
                            && Allocations.inventory(lab, node).coreScaling().equals(half));
            namespace.create(Pods.onNode(Pods.withGpuMemory(lab, "memory", 50000), node));
            namespace.create(Pods.onNode(
                    Pods.withLimits(lab, "cores", Map.of(Resources.MEMORY, "1000", Resources.CORES, "60")), node));
            assertThat(namespace.awaitUnschedulable("memory")).contains("no GPU that large: 50000 MiB");
            assertThat(namespace.awaitUnschedulable("cores")).contains("no GPU with so much compute: 60 percent");
        } finally {
            lab.kubectl("annotate", "node", node, Annotations.MEMORY_SCALING + "-", Annotations.CORE_SCALING + "-")
                    .expectSuccess();
        }
        namespace.awaitRunning("memory", PROMPTLY);
        namespace.awaitRunning("cores", PROMPTLY);
    }

    @Test
    void aFinishedJobFreesItsShareWhileItsPodStillExists(Lab lab, TestNamespace namespace) {
        String node = namespace.node();
        Pod task = Pods.onNode(Pods.withLimits(lab, "task", Map.of(Resources.VGPU, "2")), node)
                .edit()
                .editSpec()
                .withRestartPolicy("Never")
                .editFirstContainer()
                .withCommand("bash", "-c", "until [ -f /tmp/done ]; do sleep 0.1; done")
                .endContainer()
                .endSpec()
                .build();
        namespace
                .client()
                .resource(new JobBuilder()
                        .withNewMetadata()
                        .withName("job")
                        .withNamespace(namespace.name())
                        .endMetadata()
                        .withNewSpec()
                        .withNewTemplate()
                        .withSpec(task.getSpec())
                        .endTemplate()
                        .endSpec()
                        .build())
                .create();
        TestNamespace.awaitTrue(
                "the job's pod", EVENTUALLY, () -> pods(namespace).size() == 1);
        String worker = pods(namespace).get(0).getMetadata().getName();
        assertThat(Allocations.of(namespace.awaitRunning(worker, EVENTUALLY), Pods.MAIN))
                .hasSize(2);
        namespace.create(Pods.onNode(Pods.withGpuMemory(lab, "next", 1000), node));
        namespace.awaitUnschedulable("next");

        // Its own exit status says nothing: the container that it ends may end it too.
        namespace.exec(worker, "touch", "/tmp/done");

        namespace.awaitRunning("next", PROMPTLY);
        assertThat(namespace.get(worker).getStatus().getPhase()).isEqualTo("Succeeded");
    }

    private static Pod withPolicy(Pod pod, String policy) {
        return Pods.withAnnotations(pod, Map.of(Annotations.NODE_PLACEMENT, policy, Annotations.GPU_PLACEMENT, policy));
    }

    /** Creates pods in sequence, each once the previous one is bound. */
    private static List<Pod> createInSequence(TestNamespace namespace, int count, Function<String, Pod> make) {
        var pods = new ArrayList<Pod>();
        for (int i = 0; i < count; i++) {
            String name = "pod-" + i;
            namespace.create(make.apply(name));
            pods.add(namespace.await(name, "is bound", EVENTUALLY, TestNamespace::isBound));
        }
        return pods;
    }

    private static String node(Pod pod) {
        return pod.getSpec().getNodeName();
    }

    private static List<Pod> pods(TestNamespace namespace) {
        return namespace.client().pods().inNamespace(namespace.name()).list().getItems();
    }

    private static void setSlots(Lab lab, String node, String slots) {
        lab.kubectl("annotate", "--overwrite", "node", node, Annotations.SLOTS + "=" + slots)
                .expectSuccess();
        TestNamespace.awaitTrue(
                slots + " slots per GPU on " + node,
                EVENTUALLY,
                () -> Allocations.inventory(lab, node).slots() == Integer.parseInt(slots)
                        && lab.allocatable(node, Resources.VGPU) == 2 * Integer.parseInt(slots));
    }
}
