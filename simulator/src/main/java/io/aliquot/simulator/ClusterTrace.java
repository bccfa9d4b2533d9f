package io.aliquot.simulator;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.PlacementPreferences;
import io.aliquot.api.pods.PodDefaults;
import io.aliquot.scheduler.placement.GpuCapacity;
import io.aliquot.scheduler.simulation.PodRequest;
import io.aliquot.scheduler.simulation.SimulatedNode;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Quantity;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Stream;

/**
 * Makes a trace of a snapshot of a cluster, with or without Aliquot. The trace's remarks name what it leaves out.
 * Taints, node selectors and affinity are ignored.
 */
final class ClusterTrace {
    /** The name of the workload. */
    static final String WORKLOAD = "cluster";
    /** Names in a remark at most. */
    private static final int MAX_NAMES = 5;

    private static final Set<String> ENDED_PHASES = Set.of("Succeeded", "Failed");

    /** One object for all equal requests. */
    private final Map<PodRequest, PodRequest> requests = new HashMap<>();

    private final List<String> remarks = new ArrayList<>();
    /** Names of nodes and pods that the trace leaves out, by the reason. */
    private final Map<String, List<String>> leftOut = new LinkedHashMap<>();

    private final Map<String, SimulatedNode> nodes = new LinkedHashMap<>();

    private Compatibility compatibility = Compatibility.NONE;

    private ClusterTrace() {}

    /** @throws TraceException if nothing remains to simulate */
    static Trace of(Snapshot snapshot) {
        return new ClusterTrace().trace(snapshot);
    }

    private Trace trace(Snapshot snapshot) {
        readNodes(snapshot.nodes());
        var pods = new ArrayList<TracePod>();
        int ended = 0;
        int elsewhere = 0;
        for (Pod pod : snapshot.pods()) {
            if (hasEnded(pod)) {
                ended++;
                continue;
            }
            Optional<PodRequest> read = request(pod);
            if (read.isEmpty()) {
                continue;
            }
            PodRequest request = requests.computeIfAbsent(read.get(), same -> same);
            String node = nodeName(pod);
            if (!request.requestsGpu() && !nodes.containsKey(node)) {
                elsewhere++;
            } else if (!request.requestsGpu() && staysOnItsNode(pod)) {
                nodes.computeIfPresent(node, (name, host) -> host.withSystemPod(request));
            } else {
                pods.add(new TracePod(name(pod), request, created(pod), Instant.MAX));
            }
        }
        remark(ended, "ended pods; left out");
        remark(elsewhere, "pods without GPUs on nodes without GPUs; left out");
        leftOut.forEach((reason, names) -> remarks.add(names(names) + ": " + reason + "; left out"));
        snapshot.otherKinds().forEach((kind, count) -> remarks.add("objects of kind " + kind + "; left out: " + count));
        if (pods.stream().noneMatch(pod -> pod.request().requestsGpu())) {
            throw nothingToSimulate("no pod requests a GPU");
        }
        return new Trace(List.copyOf(nodes.values()), new TreeMap<>(Map.of(WORKLOAD, pods)), remarks);
    }

    private static boolean hasEnded(Pod pod) {
        return pod.getStatus() != null
                && ENDED_PHASES.contains(String.valueOf(pod.getStatus().getPhase()));
    }

    /** Empty for a pod without a node. */
    private static String nodeName(Pod pod) {
        String node = pod.getSpec() == null ? null : pod.getSpec().getNodeName();
        return node == null ? "" : node;
    }

    private static Instant created(Pod pod) {
        String time = pod.getMetadata().getCreationTimestamp();
        return time == null ? Instant.EPOCH : Instant.parse(time);
    }

    private void readNodes(List<Node> all) {
        int none = 0;
        var timeSliced = new ArrayList<String>();
        for (Node node : all) {
            String name = node.getMetadata().getName();
            switch (GpuNodeReader.read(node)) {
                case GpuNodeReader.Reading.Known known -> {
                    if (add(known.node())) {
                        if (known.hami()) {
                            compatibility = Compatibility.HAMI;
                        }
                        if (known.timeSliced()) {
                            timeSliced.add(name);
                        }
                    }
                }
                case GpuNodeReader.Reading.Unknown unknown -> leaveOut("node " + name, unknown.reason());
                case GpuNodeReader.Reading.None ignored -> none++;
            }
        }
        if (none > 0) {
            remarks.add(none + " of " + all.size() + " nodes have no GPUs");
        }
        if (!timeSliced.isEmpty()) {
            remarks.add("node " + names(timeSliced) + ": time-sliced; a pod's " + ForeignResources.NVIDIA_GPU
                    + " counts as a whole GPU");
        }
        if (nodes.isEmpty()) {
            throw nothingToSimulate("no node has GPUs that can be simulated");
        }
    }

    /** Whether the node has a schedulable GPU. */
    private boolean add(SimulatedNode node) {
        List<GpuCapacity> gpus = node.gpus();
        long unschedulable = gpus.stream().filter(gpu -> !gpu.schedulable()).count();
        if (unschedulable == gpus.size()) {
            leaveOut("node " + node.name(), "all its GPUs are unhealthy or cordoned");
            return false;
        }
        if (unschedulable > 0) {
            remarks.add("node " + node.name() + ": " + unschedulable + " of " + gpus.size()
                    + " GPUs unhealthy or cordoned; not counted");
        }
        nodes.put(node.name(), node);
        return true;
    }

    private TraceException nothingToSimulate(String what) {
        leftOut.forEach((reason, names) -> remarks.add(names(names) + ": " + reason));
        return new TraceException(what + (remarks.isEmpty() ? "" : " (" + String.join("; ", remarks) + ")"));
    }

    private void remark(int pods, String what) {
        if (pods > 0) {
            remarks.add(what + ": " + pods);
        }
    }

    private void leaveOut(String name, String reason) {
        leftOut.computeIfAbsent(reason, any -> new ArrayList<>()).add(name);
    }

    private static String names(List<String> names) {
        return names.size() <= MAX_NAMES
                ? String.join(", ", names)
                : String.join(", ", names.subList(0, MAX_NAMES)) + " and " + (names.size() - MAX_NAMES) + " more";
    }

    /** Whether a pod belongs to its node: a DaemonSet's pod, or the mirror of a static pod, which its Node owns. */
    private static boolean staysOnItsNode(Pod pod) {
        return pod.getMetadata().getOwnerReferences() != null
                && pod.getMetadata().getOwnerReferences().stream()
                        .anyMatch(owner -> owner.getKind().equals("DaemonSet")
                                || owner.getKind().equals("Node"));
    }

    private Optional<PodRequest> request(Pod pod) {
        try {
            var unsupported = new ArrayList<String>();
            admit(pod, unsupported);
            if (!unsupported.isEmpty()) {
                leaveOut("pod " + name(pod), "requests " + unsupported.get(0) + ", which Aliquot does not support");
                return Optional.empty();
            }
            return Optional.of(PodRequest.read(pod));
        } catch (FormatException e) {
            leaveOut("pod " + name(pod), String.valueOf(e.getMessage()));
            return Optional.empty();
        }
    }

    /** Rewrites a pod's limits as the admission webhook does. */
    private void admit(Pod pod, List<String> unsupported) {
        ObjectMeta metadata = pod.getMetadata();
        Map<String, String> annotations =
                new HashMap<>(metadata.getAnnotations() == null ? Map.of() : metadata.getAnnotations());
        List<Container> limited = Stream.concat(
                        pod.getSpec().getInitContainers().stream(), pod.getSpec().getContainers().stream())
                .filter(container -> container.getResources() != null
                        && container.getResources().getLimits() != null)
                .toList();
        if (compatibility != Compatibility.NONE
                && limited.stream().noneMatch(container -> ForeignResources.usesAckResources(limits(container)))) {
            annotations.putIfAbsent(Annotations.COMPATIBILITY, compatibility.print());
        }
        String annotation = annotations.get(Annotations.COMPATIBILITY);
        Compatibility ofPod = annotation == null
                ? Compatibility.NONE
                : Compatibility.parse("annotation " + Annotations.COMPATIBILITY, annotation);
        Map<String, String> labels = metadata.getLabels() == null ? Map.of() : metadata.getLabels();
        limited.forEach(container -> {
            Map<String, String> limits = limits(container);
            limits.keySet().stream()
                    .filter(name -> name.startsWith("nvidia.com/")
                            && !Resources.SUPPORTED.contains(name)
                            && !ForeignResources.NAMES.contains(name))
                    .forEach(unsupported::add);
            if (ForeignResources.requestsBestLinks(limits)) {
                annotations.putIfAbsent(Annotations.GPU_PLACEMENT, PlacementPreferences.TOPOLOGY);
            }
            var translated = new LinkedHashMap<String, Quantity>();
            ForeignResources.toAliquot(limits, labels, ofPod, PodDefaults.NONE)
                    .forEach((name, amount) -> translated.put(name, new Quantity(amount)));
            container.getResources().setLimits(translated);
        });
        metadata.setAnnotations(annotations);
    }

    private static Map<String, String> limits(Container container) {
        var limits = new LinkedHashMap<String, String>();
        container.getResources().getLimits().forEach((name, amount) -> limits.put(name, amount.toString()));
        return limits;
    }

    private static String name(Pod pod) {
        String namespace = pod.getMetadata().getNamespace();
        return (namespace == null ? "" : namespace + "/") + pod.getMetadata().getName();
    }
}
