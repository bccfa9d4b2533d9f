package io.aliquot.simulator;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.scheduler.simulation.PodRequest;
import io.aliquot.scheduler.simulation.SimulatedNode;
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
 * @param percent of the pods with GPUs that require a model afterwards; at least
 * @param model the required model; empty to draw one for each pod, in proportion to the models' GPUs
 */
record RequiredModels(int percent, String model) {
    /** Changes no pod. */
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
     * @throws IllegalArgumentException if the text has another format
     */
    static RequiredModels parse(String text) {
        String[] parts = text.split(":", 2);
        return new RequiredModels(Integer.parseInt(parts[0]), parts.length > 1 ? parts[1] : "");
    }

    /** The size of a node, and one of its GPUs. */
    private record Size(Gpu gpu, int gpus, long cpuMillis, long memoryBytes) {
        static Size of(SimulatedNode node) {
            List<Gpu> gpus = node.inventory().gpus();
            return new Size(gpus.get(0), gpus.size(), node.cpuMillis(), node.memoryBytes());
        }

        boolean fits(PodRequest pod) {
            return gpus >= pod.maxVgpus() && cpuMillis >= pod.cpuMillis() && memoryBytes >= pod.memoryBytes();
        }
    }

    /**
     * The pods of a workload. A pod that fits on no empty node with the model remains unchanged.
     *
     * @return equal pods for equal arguments
     */
    List<TracePod> of(Trace trace, List<TracePod> workload, long seed) {
        if (percent == 0) {
            return workload;
        }
        Map<String, List<Size>> models = models(trace);
        List<Integer> unrestricted = new ArrayList<>();
        long withGpus = 0;
        for (int i = 0; i < workload.size(); i++) {
            PodRequest request = workload.get(i).request();
            if (request.requestsGpu()) {
                withGpus++;
                if (models.values().stream()
                        .allMatch(sizes -> request.accepts(sizes.get(0).gpu()))) {
                    unrestricted.add(i);
                }
            }
        }
        var random = new Random(seed);
        Collections.shuffle(unrestricted, random);
        long missing = Math.round(withGpus * (double) percent / ALL) - (withGpus - unrestricted.size());
        Map<PodRequest, Map<String, PodRequest>> restricted = new HashMap<>();
        List<TracePod> pods = new ArrayList<>(workload);
        for (int i = 0; i < unrestricted.size() && missing > 0; i++) {
            TracePod pod = workload.get(unrestricted.get(i));
            String required = draw(models, pod.request(), random);
            if (!required.isEmpty()) {
                PodRequest request = restricted
                        .computeIfAbsent(pod.request(), any -> new HashMap<>())
                        .computeIfAbsent(required, any -> pod.request().onModel(required));
                pods.set(unrestricted.get(i), new TracePod(pod.name(), request, pod.created(), pod.ended()));
                missing--;
            }
        }
        return List.copyOf(pods);
    }

    private static Map<String, List<Size>> models(Trace trace) {
        Map<String, List<Size>> models = new LinkedHashMap<>();
        for (SimulatedNode node : trace.nodes()) {
            if (!node.inventory().gpus().isEmpty()) {
                Size size = Size.of(node);
                models.computeIfAbsent(size.gpu().model(), any -> new ArrayList<>())
                        .add(size);
            }
        }
        return models;
    }

    /** A random model that the pod can require, in proportion to the models' GPUs; empty if there is none. */
    private String draw(Map<String, List<Size>> models, PodRequest pod, Random random) {
        Map<String, Integer> gpus = new LinkedHashMap<>();
        int all = 0;
        for (Map.Entry<String, List<Size>> one : models.entrySet()) {
            if ((model.isEmpty() || model.equals(one.getKey()))
                    && one.getValue().stream().anyMatch(size -> size.fits(pod))) {
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
}
