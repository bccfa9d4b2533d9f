package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.PROMPT;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Annotations;
import io.aliquot.api.Labels;
import io.aliquot.api.Resources;
import io.aliquot.api.Scaling;
import io.aliquot.api.Vgpu;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.batch.v1.JobBuilder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Which pod goes to which GPU, and what happens to those that fit nowhere. */
@ExtendWith(LabExtension.class)
class PlacementIT {
    /** kube-scheduler tries a pod again after 3 s at most. */
    private static final Duration BACKOFF = Duration.ofSeconds(3);

    @Test
    void withBinpackTenPodsShareAGpuAndTheEleventhGoesToAnother(Lab lab, TestNamespace space) {
        List<Pod> pods = bind(space, 11, name -> placed(Pods.memory(lab, name, 8000), "binpack"));

        assertThat(Allocations.count(pods).values()).containsExactlyInAnyOrder(10, 1);
        assertThat(pods).extracting(pod -> pod.getSpec().getNodeName()).containsOnly(node(pods.get(0)));
    }

    @Test
    void withSpreadElevenPodsUseAllFourGpus(Lab lab, TestNamespace space) {
        List<Pod> pods = bind(space, 11, name -> placed(Pods.memory(lab, name, 8000), "spread"));

        assertThat(Allocations.count(pods).values()).containsExactlyInAnyOrder(3, 3, 3, 2);
    }

    @Test
    void whereANodeHasMoreSlotsMemoryAloneDecides(Lab lab, TestNamespace space) {
        String node = lab.nodes().get(1);
        setSlots(lab, node, "20");
        try {
            List<Pod> pods =
                    bind(space, 12, name -> placed(Pods.onNode(Pods.memory(lab, name, 7000), node), "binpack"));

            assertThat(Allocations.count(pods).values()).containsExactlyInAnyOrder(11, 1);
        } finally {
            space.empty();
            setSlots(lab, node, "10");
            lab.kubectl("annotate", "node", node, Annotations.SLOTS + "-").expectSuccess();
        }
    }

    @Test
    void aPodWithTwoVgpusGetsTwoGpusOfOneNode(Lab lab, TestNamespace space) {
        Pod pod = space.run(Pods.asking(lab, "two", Map.of(Resources.GPU, "2", Resources.MEMORY, "3000")));

        List<String> held = Allocations.of(pod, Pods.MAIN).stream().map(Vgpu::uuid).toList();
        assertThat(held).hasSize(2).doesNotHaveDuplicates();
        assertThat(Allocations.inventory(lab, node(pod)).gpus())
                .extracting(gpu -> gpu.uuid())
                .containsAll(held);
        assertThat(space.exec("two", "nvidia-smi", "-L").expectSuccess()).contains(held);
    }

    @Test
    void aPodThatMustHaveItsGpusInOneNumaDomainIsToldThatNoNodeHasTwoThere(Lab lab, TestNamespace space) {
        Pod two = Pods.asking(lab, "must", Map.of(Resources.GPU, "2", Resources.MEMORY, "3000"));
        space.create(Pods.annotated(two, Map.of(Annotations.NUMA, "required")));
        assertThat(space.awaitUnschedulable("must")).contains("no NUMA domain with 2 such GPUs");

        two.getMetadata().setName("would");
        Pod pod = space.run(Pods.annotated(two, Map.of(Annotations.NUMA, "preferred")));

        assertThat(Allocations.of(pod, Pods.MAIN)).hasSize(2);
    }

    @Test
    void aNodeThatGivesWholeCardsOnlyRefusesSharesUntilItsLabelIsTakenAway(Lab lab, TestNamespace space) {
        String node = lab.nodes().get(1);
        lab.kubectl("label", "node", node, Labels.SHARE + "=exclusive").expectSuccess();
        try {
            space.create(Pods.onNode(Pods.memory(lab, "share", 1000), node));
            assertThat(space.awaitUnschedulable("share")).contains("gives whole cards only");
            space.run(Pods.onNode(Pods.asking(lab, "whole", Map.of(Resources.GPU, "1")), node));
        } finally {
            lab.kubectl("label", "node", node, Labels.SHARE + "-").expectSuccess();
        }
        space.awaitRunning("share", PROMPT.plus(BACKOFF));
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    void aPodWithThreeVgpusIsToldThatNoNodeHasThree(Lab lab, TestNamespace space) {
        space.create(Pods.asking(lab, "three", Map.of(Resources.GPU, "3", Resources.MEMORY, "3000")));

        String said = space.awaitUnschedulable("three");

        assertThat(said).contains("asks for 3 vGPUs");
        assertThat(space.describe("three")).contains(said);
    }

    @Test
    void aPodThatDoesNotFitSaysWhyAndIsBoundSoonAfterRoomAppears(Lab lab, TestNamespace space) {
        for (int i = 0; i < 4; i++) {
            space.create(Pods.asking(lab, "whole-" + i, Map.of(Resources.GPU, "1")));
        }
        for (int i = 0; i < 4; i++) {
            space.awaitRunning("whole-" + i, EVENTUALLY);
        }
        space.create(Pods.memory(lab, "waiting", 3000));
        assertThat(space.awaitUnschedulable("waiting")).contains("2 no GPU with 3000 MiB free");

        space.delete("whole-2");

        space.await("waiting", "is bound", PROMPT, TestNamespace::bound);
        space.awaitRunning("waiting", EVENTUALLY);
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    void aWholeCardIsSharedWithNobody(Lab lab, TestNamespace space) {
        Pod whole = space.run(Pods.asking(lab, "whole", Map.of(Resources.GPU, "1")));
        List<Pod> shares = bind(space, 3, name -> Pods.onNode(Pods.memory(lab, name, 1000), node(whole)));

        assertThat(Allocations.of(whole, Pods.MAIN)).singleElement().satisfies(vgpu -> {
            assertThat(vgpu.exclusive()).isTrue();
            assertThat(vgpu.memoryMiB()).isEqualTo(81920);
        });
        assertThat(shares).extracting(Allocations::gpu).doesNotContain(Allocations.gpu(whole));
    }

    @Test
    void aSecondAfterAGpuIsCordonedItGetsNoPodsAndWhenThatIsLiftedItDoes(Lab lab, TestNamespace space)
            throws InterruptedException {
        String node = lab.nodes().get(0);
        String cordoned = Allocations.gpu(space.run(Pods.onNode(Pods.memory(lab, "first", 1000), node)));
        lab.kubectl("annotate", "node", node, Annotations.CORDON_GPUS + "=" + cordoned)
                .expectSuccess();
        try {
            TimeUnit.SECONDS.sleep(1);
            // which would have the first one's
            Pod second = placed(Pods.onNode(Pods.memory(lab, "second", 1000), node), "binpack");
            assertThat(Allocations.gpu(space.run(second))).isNotEqualTo(cordoned);
            space.create(
                    Pods.onNode(Pods.asking(lab, "waits", Map.of(Resources.GPU, "2", Resources.MEMORY, "1000")), node));
            space.awaitUnschedulable("waits");
        } finally {
            lab.kubectl("annotate", "node", node, Annotations.CORDON_GPUS + "-").expectSuccess();
        }
        assertThat(Allocations.of(space.awaitRunning("waits", PROMPT), Pods.MAIN))
                .extracting(Vgpu::uuid)
                .contains(cordoned);
    }

    @Test
    void aScalingIsInForceAtOnceAndWhenItIsLiftedWaitingPodsRun(Lab lab, TestNamespace space) {
        String node = lab.nodes().get(1);
        // Downwards: the node's totals don't come down again, and other tests count them.
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
                    "the inventory tells it",
                    PROMPT,
                    () -> Allocations.inventory(lab, node).memoryScaling().equals(half)
                            && Allocations.inventory(lab, node).coreScaling().equals(half));
            space.create(Pods.onNode(Pods.memory(lab, "memory", 50000), node));
            space.create(Pods.onNode(
                    Pods.asking(lab, "cores", Map.of(Resources.MEMORY, "1000", Resources.CORES, "60")), node));
            assertThat(space.awaitUnschedulable("memory")).contains("no GPU that large: 50000 MiB");
            assertThat(space.awaitUnschedulable("cores")).contains("no GPU with so much compute: 60 percent");
        } finally {
            lab.kubectl("annotate", "node", node, Annotations.MEMORY_SCALING + "-", Annotations.CORE_SCALING + "-")
                    .expectSuccess();
        }
        space.awaitRunning("memory", PROMPT.plus(BACKOFF));
        space.awaitRunning("cores", PROMPT.plus(BACKOFF));
    }

    @Test
    void aJobThatFinishesFreesItsShareAlthoughItsPodIsStillThere(Lab lab, TestNamespace space) {
        String node = lab.nodes().get(0);
        Pod task = Pods.onNode(Pods.asking(lab, "task", Map.of(Resources.GPU, "2")), node)
                .edit()
                .editSpec()
                .withRestartPolicy("Never")
                .editFirstContainer()
                .withCommand("bash", "-c", "until [ -f /tmp/done ]; do sleep 0.1; done")
                .endContainer()
                .endSpec()
                .build();
        space.client()
                .resource(new JobBuilder()
                        .withNewMetadata()
                        .withName("job")
                        .withNamespace(space.name())
                        .endMetadata()
                        .withNewSpec()
                        .withNewTemplate()
                        .withSpec(task.getSpec())
                        .endTemplate()
                        .endSpec()
                        .build())
                .create();
        TestNamespace.awaitTrue("the job's pod", EVENTUALLY, () -> pods(space).size() == 1);
        String worker = pods(space).get(0).getMetadata().getName();
        assertThat(Allocations.of(space.awaitRunning(worker, EVENTUALLY), Pods.MAIN))
                .hasSize(2);
        space.create(Pods.onNode(Pods.memory(lab, "next", 1000), node));
        space.awaitUnschedulable("next");

        space.exec(worker, "touch", "/tmp/done").expectSuccess();

        space.awaitRunning("next", PROMPT.plus(BACKOFF));
        assertThat(space.get(worker).getStatus().getPhase()).isEqualTo("Succeeded");
    }

    private static Pod placed(Pod pod, String policy) {
        return Pods.annotated(pod, Map.of(Annotations.NODE_PLACEMENT, policy, Annotations.GPU_PLACEMENT, policy));
    }

    /** Creates pods one by one, each as soon as the one before is bound. */
    private static List<Pod> bind(TestNamespace space, int count, Function<String, Pod> make) {
        var pods = new ArrayList<Pod>();
        for (int i = 0; i < count; i++) {
            String name = "pod-" + i;
            space.create(make.apply(name));
            pods.add(space.await(name, "is bound", EVENTUALLY, TestNamespace::bound));
        }
        return pods;
    }

    private static String node(Pod pod) {
        return pod.getSpec().getNodeName();
    }

    private static List<Pod> pods(TestNamespace space) {
        return space.client().pods().inNamespace(space.name()).list().getItems();
    }

    private static void setSlots(Lab lab, String node, String slots) {
        lab.kubectl("annotate", "--overwrite", "node", node, Annotations.SLOTS + "=" + slots)
                .expectSuccess();
        TestNamespace.awaitTrue(
                slots + " slots a GPU on " + node,
                EVENTUALLY,
                () -> Allocations.inventory(lab, node).slots() == Integer.parseInt(slots)
                        && lab.allocatable(node, Resources.GPU) == 2 * Integer.parseInt(slots));
    }
}
