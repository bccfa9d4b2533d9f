package io.aliquot.scheduler.simulate;

import io.aliquot.api.Annotations;
import io.aliquot.api.Gpu;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/**
 * Makes pods of a workload require a GPU model. Pods that require models already count and keep them. Immutable.
 *
 * @param percent of the pods that ask for GPUs; so many require a model afterwards, or more
 * @param model the one that is required; empty for one that is drawn for each pod, in proportion to the models' GPUs
 */
record RequiredModels(int percent, String model) {
    /** The pods as they are. */
    static final RequiredModels NONE = new RequiredModels(0, "");

    private static final int ALL = 100;

    RequiredModels {
        if (percent < 0 || percent > ALL) {
            throw new IllegalArgumentException(percent + " percent; expected 0 to " + ALL);
        }
    }

    /**
     * Reads {@code PERCENT} or {@code PERCENT:MODEL}.
     *
     * @throws IllegalArgumentException where it is neither
     */
    static RequiredModels parse(String text) {
        String[] parts = text.split(":", 2);
        return new RequiredModels(Integer.parseInt(parts[0]), parts.length > 1 ? parts[1] : "");
    }

    /** A node's size, and one of its GPUs. */
    private record Size(Gpu gpu, int gpus, HostResources allocatable) {
        static Size of(Node node) {
            List<Gpu> gpus = node.facts().inventory().gpus();
            return new Size(gpus.get(0), gpus.size(), node.facts().allocatable());
        }

        boolean holds(Pod pod) {
            return gpus >= pod.ask().mostVgpus()
                    && allocatable.cpuMillis() >= pod.requests().cpuMillis()
                    && allocatable.memoryBytes() >= pod.requests().memoryBytes();
        }
    }

    /**
     * The pods of a workload. A pod that no empty node with the model holds is left as it is.
     *
     * @return equal pods for equal arguments
     */
    List<Pod> of(Trace trace, List<Pod> workload, long seed) {
        if (percent == 0) {
            return workload;
        }
        Map<String, List<Size>> models = models(trace);
        List<Integer> free = new ArrayList<>();
        long asking = 0;
        for (int i = 0; i < workload.size(); i++) {
            PodGpuRequest ask = workload.get(i).ask();
            if (!ask.containers().isEmpty()) {
                asking++;
                if (models.values().stream()
                        .allMatch(sizes -> ask.takes(sizes.get(0).gpu()))) {
                    free.add(i);
                }
            }
        }
        var random = new Random(seed);
        Collections.shuffle(free, random);
        long missing = Math.round(asking * (double) percent / ALL) - (asking - free.size());
        Map<PodGpuRequest, Map<String, PodGpuRequest>> asks = new HashMap<>();
        List<Pod> pods = new ArrayList<>(workload);
        for (int i = 0; i < free.size() && missing > 0; i++) {
            Pod pod = workload.get(free.get(i));
            String required = draw(models, pod, random);
            if (!required.isEmpty()) {
                PodGpuRequest ask = asks.computeIfAbsent(pod.ask(), any -> new HashMap<>())
                        .computeIfAbsent(required, any -> requiring(pod.ask(), required));
                pods.set(free.get(i), new Pod(pod.name(), ask, pod.requests(), pod.created(), pod.ends()));
                missing--;
            }
        }
        return List.copyOf(pods);
    }

    private static Map<String, List<Size>> models(Trace trace) {
        Map<String, List<Size>> models = new LinkedHashMap<>();
        for (Node node : trace.nodes()) {
            if (!node.facts().inventory().gpus().isEmpty()) {
                Size size = Size.of(node);
                models.computeIfAbsent(size.gpu().model(), any -> new ArrayList<>())
                        .add(size);
            }
        }
        return models;
    }

    /** A model that the pod may require; empty if there is none. */
    private String draw(Map<String, List<Size>> models, Pod pod, Random random) {
        Map<String, Integer> gpus = new LinkedHashMap<>();
        int all = 0;
        for (Map.Entry<String, List<Size>> one : models.entrySet()) {
            if ((model.isEmpty() || model.equals(one.getKey()))
                    && one.getValue().stream().anyMatch(size -> size.holds(pod))) {
                int count = one.getValue().stream().mapToInt(Size::gpus).sum();
                gpus.put(one.getKey(), count);
                all += count;
            }
        }
        if (all == 0) {
            return "";
        }
        int drawn = random.nextInt(all);
        String name = "";
        for (Map.Entry<String, Integer> one : gpus.entrySet()) {
            name = drawn >= 0 ? one.getKey() : name;
            drawn -= one.getValue();
        }
        return name;
    }

    private static PodGpuRequest requiring(PodGpuRequest ask, String model) {
        return PodGpuRequest.of(ask.containers(), Map.of(Annotations.USE_GPU_MODEL, model), ask.preferences());
    }
}
