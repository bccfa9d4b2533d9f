package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Annotations;
import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.api.Resources;
import io.aliquot.api.Vgpu;
import io.aliquot.api.Vgpus;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.Pod;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** Who holds what of which GPU, read from the cluster as anybody could. */
final class Allocations {
    private Allocations() {}

    /** The inventory that a node's agent has written. */
    static Inventory inventory(Lab lab, String node) {
        Node object = lab.client().nodes().withName(node).get();
        String text = object.getMetadata().getAnnotations().get(Annotations.GPUS);
        return Inventory.parse(Optional.ofNullable(text)
                .orElseThrow(() -> new AssertionError(node + " has no annotation " + Annotations.GPUS)));
    }

    /** The vGPUs of a pod's container; empty if it holds none. */
    static List<Vgpu> of(Pod pod, String container) {
        String text = pod.getMetadata().getAnnotations() == null
                ? null
                : pod.getMetadata().getAnnotations().get(Annotations.vgpu(container));
        return text == null ? List.of() : Vgpus.parse(text).list();
    }

    /** The GPU of a pod whose one container holds one. */
    static String gpu(Pod pod) {
        List<Vgpu> held = of(pod, Pods.MAIN);
        assertThat(held).as("vGPUs of pod %s", pod.getMetadata().getName()).hasSize(1);
        return held.get(0).uuid();
    }

    /** Fails if any GPU of the cluster is given out beyond what it has, or a pod is bound without its allocation. */
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
                List<Vgpu> held = of(pod, container.getName());
                assertThat(held.size())
                        .as("vGPUs of %s", pod.getMetadata().getName())
                        .isEqualTo(asked(container));
                for (Vgpu vgpu : held) {
                    memory.merge(vgpu.uuid(), vgpu.memoryMiB(), Integer::sum);
                    cores.merge(vgpu.uuid(), vgpu.cores(), Integer::sum);
                    vgpus.merge(vgpu.uuid(), 1, Integer::sum);
                }
            }
        }
        var known = new ArrayList<String>();
        for (String node : lab.nodes()) {
            Inventory inventory = inventory(lab, node);
            for (Gpu gpu : inventory.gpus()) {
                known.add(gpu.uuid());
                assertThat(memory.getOrDefault(gpu.uuid(), 0)).isLessThanOrEqualTo(gpu.memoryMiB());
                assertThat(cores.getOrDefault(gpu.uuid(), 0)).isLessThanOrEqualTo(100);
                assertThat(vgpus.getOrDefault(gpu.uuid(), 0)).isLessThanOrEqualTo(inventory.slots());
            }
        }
        assertThat(known).as("GPUs that exist").containsAll(memory.keySet());
    }

    private static int asked(Container container) {
        var limits = container.getResources().getLimits();
        var quantity = limits == null ? null : limits.get(Resources.GPU);
        return quantity == null ? 0 : quantity.getNumericalAmount().intValueExact();
    }

    /** How many of these pods each GPU has. */
    static Map<String, Integer> count(List<Pod> pods) {
        var count = new HashMap<String, Integer>();
        pods.forEach(pod -> count.merge(gpu(pod), 1, Integer::sum));
        return count;
    }
}
