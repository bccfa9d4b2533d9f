package io.aliquot.lab;

import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watch;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/**
 * Detects double allocation from outside Aliquot: watches every version of every pod in etcd's order and, after each,
 * sums what is allocated of each GPU. Shares no code with Aliquot, so it repeats the names and formats of annotations.
 */
final class DoubleAllocationWatcher implements Watcher<Pod>, AutoCloseable {
    private static final String ALLOCATION_PREFIX = "aliquot.io/vgpu.";
    private static final Pattern LINE =
            Pattern.compile("((?:GPU|MIG)-[0-9a-f-]{36}) (?:.* )?memory=([0-9]+)Mi (?:.* )?cores=([0-9]+)( .*)?");
    private static final JsonMapper JSON = new JsonMapper();

    private record GpuCapacity(long memory, long slots) {}

    private record Allocation(String gpu, long memory, long cores, boolean exclusive) {}

    /**
     * The binding of a pod to a node.
     *
     * @param at when it was seen, by {@link System#nanoTime}
     * @param scheduler the kube-scheduler that led at the binding, as the Lease names it
     */
    record Binding(long at, String scheduler) {}

    private final Map<String, GpuCapacity> gpus = new HashMap<>();
    private final Map<String, List<Allocation>> allocationsByPod = new HashMap<>();
    private final Map<String, String> podNames = new HashMap<>();
    private final List<String> violations = new ArrayList<>();
    private final List<Binding> bindings = new ArrayList<>();
    private final KubernetesClient client;
    private @Nullable Watch watch;
    private boolean closed;

    /** Starts with the pods and nodes that exist now. */
    DoubleAllocationWatcher(KubernetesClient client) {
        this.client = client;
        for (Node node : client.nodes().list().getItems()) {
            Map<String, String> annotations = node.getMetadata().getAnnotations();
            String text = annotations == null ? null : annotations.get("aliquot.io/gpus");
            if (text != null) {
                addGpus(text);
            }
        }
        listAndWatch();
        bindings.clear();
    }

    /** Replaces what is known by a list of all pods, and watches from there on. */
    private synchronized void listAndWatch() {
        var pods = client.pods().inAnyNamespace().list();
        Set<String> known = Set.copyOf(allocationsByPod.keySet());
        // Forgets all pods before it adds any: a listed pod may have the GPU of a pod that no longer exists.
        allocationsByPod.clear();
        pods.getItems().forEach(pod -> apply(pod, known));
        watch = client.pods()
                .inAnyNamespace()
                .watch(
                        new ListOptionsBuilder()
                                .withResourceVersion(pods.getMetadata().getResourceVersion())
                                .withAllowWatchBookmarks(true)
                                .build(),
                        this);
    }

    private void addGpus(String text) {
        JsonNode inventory = JSON.readTree(text);
        for (JsonNode gpu : inventory.get("gpus")) {
            gpus.put(
                    gpu.get("uuid").asString(""),
                    new GpuCapacity(
                            gpu.get("memoryMiB").asLong(0),
                            inventory.get("slots").asLong(0)));
        }
    }

    @Override
    public synchronized void eventReceived(Action action, Pod pod) {
        if (action == Action.DELETED) {
            allocationsByPod.remove(pod.getMetadata().getUid());
        } else if (action != Action.BOOKMARK) {
            apply(pod, allocationsByPod.keySet());
        }
    }

    /** {@code known}: UIDs of the pods whose binding was seen before. */
    private void apply(Pod pod, Set<String> known) {
        String uid = pod.getMetadata().getUid();
        String phase =
                pod.getStatus() == null ? "" : String.valueOf(pod.getStatus().getPhase());
        if (Set.of("Succeeded", "Failed").contains(phase)) {
            allocationsByPod.remove(uid);
            return;
        }
        if (pod.getSpec().getNodeName() == null) {
            return;
        }
        List<Allocation> allocations = parseAllocations(pod);
        if (allocations.isEmpty() && requestsGpu(pod)) {
            violations.add(name(pod) + " is bound without an allocation");
        }
        podNames.put(uid, name(pod));
        if (!known.contains(uid) && requestsGpu(pod)) {
            String fence = pod.getMetadata().getAnnotations().getOrDefault("aliquot.io/fence", "");
            bindings.add(new Binding(System.nanoTime(), fence.replaceFirst("/.*", "")));
        }
        allocationsByPod.put(uid, allocations);
        allocations.forEach(allocation -> check(allocation.gpu(), pod));
    }

    private static String name(Pod pod) {
        return pod.getMetadata().getNamespace() + "/" + pod.getMetadata().getName();
    }

    private static boolean requestsGpu(Pod pod) {
        return pod.getSpec().getContainers().stream()
                .anyMatch(container -> container.getResources() != null
                        && container.getResources().getLimits() != null
                        && container.getResources().getLimits().containsKey("aliquot.io/vgpu"));
    }

    private List<Allocation> parseAllocations(Pod pod) {
        var allocations = new ArrayList<Allocation>();
        Map<String, String> annotations = pod.getMetadata().getAnnotations();
        if (annotations != null) {
            annotations.forEach((key, text) -> {
                if (key.startsWith(ALLOCATION_PREFIX)) {
                    text.lines().forEach(line -> {
                        Matcher matcher = LINE.matcher(line);
                        if (matcher.matches()) {
                            allocations.add(new Allocation(
                                    matcher.group(1),
                                    Long.parseLong(matcher.group(2)),
                                    Long.parseLong(matcher.group(3)),
                                    line.contains(" exclusive")));
                        } else {
                            violations.add(name(pod) + " has an allocation of unknown format: " + line);
                        }
                    });
                }
            });
        }
        return allocations;
    }

    private void check(String gpu, Pod latest) {
        long memory = 0;
        long cores = 0;
        long vgpus = 0;
        boolean exclusive = false;
        var pods = new ArrayList<String>();
        for (Map.Entry<String, List<Allocation>> allocated : allocationsByPod.entrySet()) {
            for (Allocation allocation : allocated.getValue()) {
                if (allocation.gpu().equals(gpu)) {
                    memory += allocation.memory();
                    cores += allocation.cores();
                    vgpus++;
                    exclusive |= allocation.exclusive();
                    pods.add(podNames.get(allocated.getKey()) + " " + allocation.memory() + " MiB " + allocation.cores()
                            + " %");
                }
            }
        }
        GpuCapacity capacity = gpus.get(gpu);
        if (capacity == null) {
            violations.add(name(latest) + " is allocated a GPU that does not exist: " + gpu);
        } else if (memory > capacity.memory() || cores > 100 || vgpus > capacity.slots() || (exclusive && vgpus > 1)) {
            violations.add(gpu + " is over-allocated since it was allocated to " + name(latest) + ": " + pods);
        }
    }

    /** A restarted API server answers 410 Gone, as it has no earlier events; the watcher then lists all pods again. */
    @Override
    public void onClose(WatcherException cause) {
        if (cause.isHttpGone()) {
            new Thread(this::relist, "double-allocation-watcher").start();
        } else {
            watchFailed(cause);
        }
    }

    private void relist() {
        try {
            TestNamespace.awaitTrue("the API server", TestNamespace.EVENTUALLY, () -> {
                try {
                    listAndWatch();
                    return true;
                } catch (KubernetesClientException e) {
                    return false;
                }
            });
        } catch (AssertionError e) {
            watchFailed(e);
        }
    }

    private synchronized void watchFailed(Throwable cause) {
        if (!closed) {
            violations.add("the watch of the pods failed: " + cause);
        }
    }

    /** Every violation seen, in the order of occurrence. */
    synchronized List<String> violations() {
        return List.copyOf(violations);
    }

    /** The bindings since the watcher started. */
    synchronized List<Binding> bindings() {
        return List.copyOf(bindings);
    }

    /** The longest time without a binding, between two instants of {@link System#nanoTime}. */
    Duration longestTimeWithoutBinding(long from, long to) {
        long longest = 0;
        long last = from;
        for (Binding binding : bindings()) {
            if (binding.at() > from && binding.at() < to) {
                longest = Math.max(longest, binding.at() - last);
                last = binding.at();
            }
        }
        return Duration.ofNanos(Math.max(longest, to - last));
    }

    @Override
    public synchronized void close() {
        closed = true;
        if (watch != null) {
            watch.close();
        }
    }
}
