package io.aliquot.scheduler.simulate;

import io.aliquot.api.Annotations;
import io.aliquot.api.Compatibility;
import io.aliquot.api.ForeignResources;
import io.aliquot.api.FormatException;
import io.aliquot.api.PlacementPreferences;
import io.aliquot.api.Resources;
import io.aliquot.scheduler.kubernetes.PodReader;
import io.aliquot.scheduler.placement.GpuCapacity;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.api.model.Quantity;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Stream;

/**
 * Makes a trace of a cluster that runs Aliquot, or doesn't yet. What of it takes no part is in the trace's remarks. Taints,
 * node selectors and affinities are not looked at.
 */
final class Survey {
    /** The workload's name. */
    static final String WORKLOAD = "cluster";
    /** Names told in a remark. */
    private static final int TOLD = 5;

    private final GpuNodes gpuNodes = new GpuNodes();
    private final Map<PodGpuRequest, PodGpuRequest> asks = new HashMap<>();
    private final List<String> remarks = new ArrayList<>();
    /** Names, by what is said of them. */
    private final Map<String, List<String>> leftOut = new LinkedHashMap<>();

    private final Map<String, Node> nodes = new LinkedHashMap<>();
    /** What each node's own pods take of it. */
    private final Map<String, HostResources> own = new HashMap<>();

    private Compatibility compatibility = Compatibility.NONE;

    private Survey() {}

    /** @throws TraceException where nothing is left to be simulated */
    static Trace of(Snapshot snapshot) {
        return new Survey().trace(snapshot);
    }

    private Trace trace(Snapshot snapshot) {
        readNodes(snapshot.nodes());
        var pods = new ArrayList<Pod>();
        int ended = 0;
        int elsewhere = 0;
        for (io.fabric8.kubernetes.api.model.Pod pod : snapshot.pods()) {
            if (PodReader.ended(pod)) {
                ended++;
                continue;
            }
            Optional<PodGpuRequest> ask = ask(pod);
            if (ask.isEmpty()) {
                continue;
            }
            boolean wantsGpu = !ask.get().containers().isEmpty();
            if (!wantsGpu && !nodes.containsKey(PodReader.node(pod))) {
                elsewhere++;
            } else if (!wantsGpu && ofNode(pod)) {
                own.merge(PodReader.node(pod), PodReader.requests(pod), HostResources::plus);
            } else {
                pods.add(new Pod(
                        name(pod),
                        asks.computeIfAbsent(ask.get(), any -> any),
                        PodReader.requests(pod),
                        PodReader.created(pod),
                        Instant.MAX));
            }
        }
        remark(ended, "pods that have ended and take no part");
        remark(elsewhere, "pods that ask for no GPU, run on no node that has some, and take no part");
        leftOut.forEach((why, names) -> remarks.add(names(names) + ": " + why + "; left out"));
        snapshot.others()
                .forEach((kind, count) -> remarks.add("objects of kind " + kind + ", which take no part: " + count));
        if (pods.stream().allMatch(pod -> pod.ask().containers().isEmpty())) {
            throw nothing("no pod asks for a GPU");
        }
        return new Trace(
                nodes.values().stream()
                        .map(node ->
                                new Node(node.name(), node.facts(), own.getOrDefault(node.name(), HostResources.NONE)))
                        .toList(),
                new TreeMap<>(Map.of(WORKLOAD, pods)),
                remarks);
    }

    private void readNodes(List<io.fabric8.kubernetes.api.model.Node> all) {
        int none = 0;
        var sliced = new ArrayList<String>();
        for (io.fabric8.kubernetes.api.model.Node node : all) {
            String name = node.getMetadata().getName();
            GpuNodes.Reading reading = gpuNodes.read(node);
            if (reading instanceof GpuNodes.Reading.Known known) {
                List<GpuCapacity> cards = known.node().facts().cards().list();
                long closed = cards.stream().filter(card -> !card.open()).count();
                if (closed == cards.size()) {
                    leaveOut("node " + name, "all its GPUs are unhealthy or cordoned");
                    continue;
                }
                if (closed > 0) {
                    remarks.add("node " + name + ": " + closed + " of " + cards.size()
                            + " GPUs unhealthy or cordoned; not counted");
                }
                nodes.put(name, known.node());
                if (known.hami()) {
                    compatibility = Compatibility.HAMI;
                }
                if (known.sliced()) {
                    sliced.add(name);
                }
            } else if (reading instanceof GpuNodes.Reading.Unknown unknown) {
                leaveOut("node " + name, unknown.why());
            } else {
                none++;
            }
        }
        if (none > 0) {
            remarks.add(none + " of " + all.size() + " nodes have no GPUs");
        }
        if (!sliced.isEmpty()) {
            remarks.add("node " + names(sliced) + ": time-sliced; a pod's " + Resources.GPU + " counts as a whole GPU");
        }
        if (nodes.isEmpty()) {
            throw nothing("no node has GPUs that can be simulated");
        }
    }

    private TraceException nothing(String what) {
        leftOut.forEach((why, names) -> remarks.add(names(names) + ": " + why));
        return new TraceException(what + (remarks.isEmpty() ? "" : " (" + String.join("; ", remarks) + ")"));
    }

    private void remark(int pods, String what) {
        if (pods > 0) {
            remarks.add(what + ": " + pods);
        }
    }

    private void leaveOut(String name, String why) {
        leftOut.computeIfAbsent(why, any -> new ArrayList<>()).add(name);
    }

    private static String names(List<String> names) {
        return names.size() <= TOLD
                ? String.join(", ", names)
                : String.join(", ", names.subList(0, TOLD)) + " and " + (names.size() - TOLD) + " more";
    }

    /** Whether it belongs to its node: a DaemonSet's, or the kubelet's own (a mirror of a static pod, owned by its Node). */
    private static boolean ofNode(io.fabric8.kubernetes.api.model.Pod pod) {
        return pod.getMetadata().getOwnerReferences() != null
                && pod.getMetadata().getOwnerReferences().stream()
                        .anyMatch(owner -> owner.getKind().equals("DaemonSet")
                                || owner.getKind().equals("Node"));
    }

    private Optional<PodGpuRequest> ask(io.fabric8.kubernetes.api.model.Pod pod) {
        try {
            var others = new ArrayList<String>();
            admit(pod, others);
            if (!others.isEmpty()) {
                leaveOut("pod " + name(pod), "asks for " + others.get(0) + ", which Aliquot doesn't grant");
                return Optional.empty();
            }
            return Optional.of(PodReader.gpuRequest(pod));
        } catch (FormatException e) {
            leaveOut("pod " + name(pod), String.valueOf(e.getMessage()));
            return Optional.empty();
        }
    }

    /** What the webhook would make of what it asks for. */
    private void admit(io.fabric8.kubernetes.api.model.Pod pod, List<String> others) {
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
        String named = annotations.get(Annotations.COMPATIBILITY);
        Compatibility its = named == null
                ? Compatibility.NONE
                : Compatibility.parse("annotation " + Annotations.COMPATIBILITY, named);
        Map<String, String> labels = metadata.getLabels() == null ? Map.of() : metadata.getLabels();
        limited.forEach(container -> {
            Map<String, String> limits = limits(container);
            limits.keySet().stream()
                    .filter(name -> name.startsWith("nvidia.com/")
                            && !Resources.SUPPORTED.contains(name)
                            && !ForeignResources.NAMES.contains(name))
                    .forEach(others::add);
            if (ForeignResources.requestsBestLinks(limits)) {
                annotations.putIfAbsent(Annotations.GPU_PLACEMENT, PlacementPreferences.TOPOLOGY);
            }
            var ours = new LinkedHashMap<String, Quantity>();
            ForeignResources.toAliquot(limits, labels, its)
                    .forEach((name, amount) -> ours.put(name, new Quantity(amount)));
            container.getResources().setLimits(ours);
        });
        metadata.setAnnotations(annotations);
    }

    private static Map<String, String> limits(Container container) {
        var limits = new LinkedHashMap<String, String>();
        container.getResources().getLimits().forEach((name, amount) -> limits.put(name, amount.toString()));
        return limits;
    }

    private static String name(io.fabric8.kubernetes.api.model.Pod pod) {
        String namespace = pod.getMetadata().getNamespace();
        return (namespace == null ? "" : namespace + "/") + pod.getMetadata().getName();
    }
}
