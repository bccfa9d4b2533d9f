package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.pods.Vgpus;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.Pod;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** What is allocated of each GPU, read from the annotations of pods and nodes. */
final class Allocations {
    private Allocations() {}

    /** The inventory that a node's agent has written. */
    static Inventory inventory(Lab lab, String node) {
        Node object = lab.client().nodes().withName(node).get();
        String text = object.getMetadata().getAnnotations().get(Annotations.GPUS);
        return Inventory.parse(Optional.ofNullable(text)
                .orElseThrow(() -> new AssertionError(node + " has no annotation " + Annotations.GPUS)));
    }

    /** The vGPUs that are allocated to a container; empty if there are none. */
    static List<Vgpu> of(Pod pod, String container) {
        String text = pod.getMetadata().getAnnotations() == null
                ? null
                : pod.getMetadata().getAnnotations().get(Annotations.vgpu(container));
        return text == null ? List.of() : Vgpus.parse(text).list();
    }

    /** The UUID of the GPU of a pod with exactly one vGPU. */
    static String gpuOf(Pod pod) {
        List<Vgpu> allocated = of(pod, Pods.MAIN);
        assertThat(allocated).as("vGPUs of pod %s", pod.getMetadata().getName()).hasSize(1);
        return allocated.get(0).uuid();
    }

    /** Fails if a GPU is over-allocated or a pod is bound without its allocation. */
    static void expectNoGpuOverCapacity(Lab lab) {
        var memory = new HashMap<String, Integer>();
        var cores = new HashMap<String, Integer>();
        var vgpus = new HashMap<String, Integer>();
        for (Pod pod : lab.client().pods().inAnyNamespace().list().getItems()) {
            if (pod.getSpec().getNodeName() == null
                    || List.of("Succeeded", "Failed").contains(pod.getStatus().getPhase())) {
                continue;
            }
            for (Container container : pod.getSpec().getContainers()) {
                List<Vgpu> allocated = of(pod, container.getName());
                assertThat(allocated.size())
                        .as("vGPUs of %s", pod.getMetadata().getName())
                        .isEqualTo(requested(container));
                for (Vgpu vgpu : allocated) {
                    memory.merge(vgpu.uuid(), vgpu.memoryMiB(), Integer::sum);
                    cores.merge(vgpu.uuid(), vgpu.cores(), Integer::sum);
                    vgpus.merge(vgpu.uuid(), 1, Integer::sum);
                }
            }
        }
        var existing = new ArrayList<String>();
        for (String node : lab.nodesWithShares()) {
            Inventory inventory = inventory(lab, node);
            for (Gpu gpu : inventory.gpus()) {
                existing.add(gpu.uuid());
                assertThat(memory.getOrDefault(gpu.uuid(), 0)).isLessThanOrEqualTo(gpu.memoryMiB());
                assertThat(cores.getOrDefault(gpu.uuid(), 0)).isLessThanOrEqualTo(100);
                assertThat(vgpus.getOrDefault(gpu.uuid(), 0)).isLessThanOrEqualTo(inventory.slots());
            }
        }
        assertThat(existing).as("existing GPUs").containsAll(memory.keySet());
    }

    private static int requested(Container container) {
        var limits = container.getResources().getLimits();
        var quantity = limits == null ? null : limits.get(Resources.VGPU);
        return quantity == null ? 0 : quantity.getNumericalAmount().intValueExact();
    }

    /** The number of these pods on each GPU, by UUID. */
    static Map<String, Integer> podsPerGpu(List<Pod> pods) {
        var count = new HashMap<String, Integer>();
        pods.forEach(pod -> count.merge(gpuOf(pod), 1, Integer::sum));
        return count;
    }
}
