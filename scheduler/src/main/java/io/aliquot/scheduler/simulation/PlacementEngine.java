package io.aliquot.scheduler.simulation;

import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerEvents;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuInfo;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodScopes;
import io.aliquot.scheduler.scoring.NodeRanking;
import io.aliquot.scheduler.scoring.NodeScoring;
import io.aliquot.scheduler.scoring.ScoringPolicy;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * Places pods on nodes with the scheduler's ledger, as the verbs of the extender do: Filter observes a pod, asks the
 * nodes and reserves the best one; Bind selects the GPUs and commits them. kube-scheduler's own checks are not part of
 * it. Equal calls give equal results. Not thread-safe.
 */
public final class PlacementEngine {
    /** A pod without a node. */
    public record PendingPod(String uid, PodRequest request) {
        /** The same pod, restricted to one GPU. */
        public PendingPod onGpu(String gpuUuid) {
            return new PendingPod(uid, request.onGpu(gpuUuid));
        }
    }

    /**
     * A pod on its node.
     *
     * @param gpus UUIDs of its GPUs
     */
    public record PlacedPod(String uid, String node, Set<String> gpus, PodRequest request) {}

    private final Ledger ledger;
    private final NodeScoring scoring;
    private final Placement policy;
    private final Map<String, FreeCapacity.Shape> shapes;
    /** Free CPU and memory of each node. */
    private final Map<String, HostResources> free = new HashMap<>();

    private long pods;

    PlacementEngine(
            List<SimulatedNode> nodes,
            Map<String, FreeCapacity.Shape> shapes,
            Placement policy,
            ScoringPolicy scoringPolicy) {
        this.ledger = new Ledger(System::nanoTime, new LedgerEvents());
        this.scoring = new NodeScoring(ledger, scoringPolicy);
        this.policy = policy;
        this.shapes = shapes;
        for (SimulatedNode node : nodes) {
            Sharing facts = node.facts;
            ledger.putNode(node.name(), new Sharing(facts.gpus(), policy, facts.allocatable(), facts.runtime()));
            ledger.observeBound(systemPod(node));
            free.put(node.name(), node.free());
        }
    }

    /** One pod in place of all that stay on the node. */
    private static BoundPod systemPod(SimulatedNode node) {
        return new BoundPod(
                new PodId("", "", "of node " + node.name()),
                node.name(),
                0,
                List.of(),
                node.systemPods,
                PodScopes.NONE,
                0,
                Instant.EPOCH,
                Instant.EPOCH,
                Duration.ZERO,
                Instant.MAX);
    }

    /** A new pod. A policy that learns from the mix of pods counts it. */
    public PendingPod arrive(PodRequest request) {
        var pod = new PendingPod(Long.toString(pods++), request);
        if (request.requestsGpu()) {
            scoring.observe(pod.uid(), request.request());
        }
        return pod;
    }

    /** Reserves the best of the nodes, by the pod's policy or else the engine's; empty if the pod fits on none. */
    public Optional<String> reserveBest(PendingPod pod, List<String> nodes) {
        Placement wanted = pod.request().request().nodePlacement().orElse(policy);
        NodeRanking ranking = scoring.forPod(pod.uid(), pod.request().request(), wanted);
        Optional<String> best =
                ranking.best(nodes, 1, (node, refuses) -> {}).stream().findFirst();
        best.ifPresent(node -> ledger.reserve(id(pod.uid()), node, pod.request().request()));
        return best;
    }

    /** Those of the nodes that the pod fits on. */
    public List<String> feasible(PendingPod pod, List<String> nodes) {
        NodeRanking ranking = scoring.forPod(pod.uid(), pod.request().request(), policy);
        return nodes.stream()
                .filter(node -> ranking.feasibility(node) instanceof Feasibility.Fits)
                .toList();
    }

    /** Whether the pod fits on a node. */
    public boolean fits(PendingPod pod, String node) {
        return ledger.feasibility(node, pod.uid(), pod.request().request()) instanceof Feasibility.Fits;
    }

    /** Selects GPUs of a node that the pod fits on, and commits them. */
    public PlacedPod bind(PendingPod pod, String node) {
        var granted = (Granted) ledger.commit(id(pod.uid()), node, pod.request().request(), 1);
        free.computeIfPresent(
                node, (name, left) -> left.minus(pod.request().request().hostRequests()));
        Set<String> gpus = granted.containers().values().stream()
                .flatMap(vgpus -> vgpus.list().stream())
                .map(vgpu -> vgpu.uuid())
                .collect(Collectors.toSet());
        return new PlacedPod(pod.uid(), node, gpus, pod.request());
    }

    /** Ends a pod, which frees its capacity. */
    public void end(PlacedPod pod) {
        ledger.observeEnded(pod.uid());
        free.computeIfPresent(
                pod.node(), (name, left) -> left.plus(pod.request().request().hostRequests()));
    }

    /** Free capacity of a node. */
    public FreeCapacity capacity(String node) {
        FreeCapacity.Shape shape = Optional.ofNullable(shapes.get(node)).orElseThrow();
        return FreeCapacity.of(
                shape, free.getOrDefault(node, HostResources.NONE), view(node).gpus());
    }

    /** What pods hold of a node's GPUs, in the order of its inventory. */
    public List<GpuAmount> usage(String node) {
        return view(node).gpus().stream().map(GpuInfo::allocated).toList();
    }

    private NodeView view(String node) {
        return ledger.view(node).orElseThrow();
    }

    private static PodId id(String uid) {
        return new PodId("", "", uid);
    }
}
