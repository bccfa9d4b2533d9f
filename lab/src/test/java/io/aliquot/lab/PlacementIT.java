package io.aliquot.lab;

import static io.aliquot.lab.Space.EVENTUALLY;
import static io.aliquot.lab.Space.PROMPT;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Annotations;
import io.aliquot.api.Resources;
import io.aliquot.api.Vgpu;
import io.fabric8.kubernetes.api.model.Pod;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Which pod goes to which GPU, and what happens to those that fit nowhere. */
@ExtendWith(LabExtension.class)
class PlacementIT {
    @Test
    void withBinpackTenPodsShareAGpuAndTheEleventhGoesToAnother(Lab lab, Space space) {
        List<Pod> pods = bind(space, 11, name -> Pods.memory(lab, name, 8000));

        assertThat(Holdings.count(pods).values()).containsExactlyInAnyOrder(10, 1);
        assertThat(pods).extracting(pod -> pod.getSpec().getNodeName()).containsOnly(node(pods.get(0)));
    }

    @Test
    void withSpreadElevenPodsUseAllFourGpus(Lab lab, Space space) {
        List<Pod> pods = bind(
                space,
                11,
                name -> Pods.annotated(
                        Pods.memory(lab, name, 8000),
                        Map.of(Annotations.NODE_PLACEMENT, "spread", Annotations.GPU_PLACEMENT, "spread")));

        assertThat(Holdings.count(pods).values()).containsExactlyInAnyOrder(3, 3, 3, 2);
    }

    @Test
    void whereANodeHasMoreSlotsMemoryAloneDecides(Lab lab, Space space) {
        String node = lab.nodes().get(1);
        setSlots(lab, node, "20");
        try {
            List<Pod> pods = bind(space, 12, name -> Pods.onNode(Pods.memory(lab, name, 7000), node));

            assertThat(Holdings.count(pods).values()).containsExactlyInAnyOrder(11, 1);
        } finally {
            pods(space).forEach(pod -> space.delete(pod.getMetadata().getName()));
            setSlots(lab, node, "10");
            lab.kubectl("annotate", "node", node, Annotations.SLOTS + "-").expectSuccess();
        }
    }

    @Test
    void aPodWithTwoVgpusGetsTwoGpusOfOneNode(Lab lab, Space space) {
        Pod pod = space.run(Pods.asking(lab, "two", Map.of(Resources.GPU, "2", Resources.MEMORY, "3000")));

        List<String> held = Holdings.of(pod, Pods.MAIN).stream().map(Vgpu::uuid).toList();
        assertThat(held).hasSize(2).doesNotHaveDuplicates();
        assertThat(Holdings.inventory(lab, node(pod)).gpus())
                .extracting(gpu -> gpu.uuid())
                .containsAll(held);
        assertThat(space.exec("two", "nvidia-smi", "-L").expectSuccess()).contains(held);
    }

    @Test
    void aPodWithThreeVgpusIsToldThatNoNodeHasThree(Lab lab, Space space) {
        space.create(Pods.asking(lab, "three", Map.of(Resources.GPU, "3", Resources.MEMORY, "3000")));

        String said = space.awaitUnschedulable("three");

        assertThat(said).contains("asks for 3 vGPUs");
        assertThat(space.describe("three")).contains(said);
    }

    @Test
    void aPodThatDoesNotFitSaysWhyAndIsBoundSoonAfterRoomAppears(Lab lab, Space space) {
        for (int i = 0; i < 4; i++) {
            space.create(Pods.asking(lab, "whole-" + i, Map.of(Resources.GPU, "1")));
        }
        for (int i = 0; i < 4; i++) {
            space.awaitRunning("whole-" + i, EVENTUALLY);
        }
        space.create(Pods.memory(lab, "waiting", 3000));
        assertThat(space.awaitUnschedulable("waiting")).contains("2 no GPU with 3000 MiB free");

        space.delete("whole-2");

        space.await("waiting", "is bound", PROMPT, Space::bound);
        space.awaitRunning("waiting", EVENTUALLY);
        Holdings.expectNoGpuOverCapacity(lab);
    }

    @Test
    void aWholeCardIsSharedWithNobody(Lab lab, Space space) {
        Pod whole = space.run(Pods.asking(lab, "whole", Map.of(Resources.GPU, "1")));
        List<Pod> shares = bind(space, 3, name -> Pods.onNode(Pods.memory(lab, name, 1000), node(whole)));

        assertThat(Holdings.of(whole, Pods.MAIN)).singleElement().satisfies(vgpu -> {
            assertThat(vgpu.exclusive()).isTrue();
            assertThat(vgpu.memoryMiB()).isEqualTo(81920);
        });
        assertThat(shares).extracting(Holdings::gpu).doesNotContain(Holdings.gpu(whole));
    }

    /** Creates pods one by one, each as soon as the one before is bound. */
    private static List<Pod> bind(Space space, int count, Function<String, Pod> make) {
        var pods = new ArrayList<Pod>();
        for (int i = 0; i < count; i++) {
            String name = "pod-" + i;
            space.create(make.apply(name));
            pods.add(space.await(name, "is bound", EVENTUALLY, Space::bound));
        }
        return pods;
    }

    private static String node(Pod pod) {
        return pod.getSpec().getNodeName();
    }

    private static List<Pod> pods(Space space) {
        return space.client().pods().inNamespace(space.name()).list().getItems();
    }

    private static void setSlots(Lab lab, String node, String slots) {
        lab.kubectl("annotate", "--overwrite", "node", node, Annotations.SLOTS + "=" + slots)
                .expectSuccess();
        Space.awaitTrue(
                slots + " slots a GPU on " + node,
                EVENTUALLY,
                () -> Holdings.inventory(lab, node).slots() == Integer.parseInt(slots)
                        && lab.allocatable(node, Resources.GPU) == 2 * Integer.parseInt(slots));
    }
}
