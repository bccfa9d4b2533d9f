package io.aliquot.simulator;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.simulation.PlacementEngine;
import io.aliquot.scheduler.simulation.PlacementEngine.PendingPod;
import io.aliquot.scheduler.simulation.PlacementEngine.PlacedPod;
import io.aliquot.scheduler.simulation.SimulatedCluster;
import io.aliquot.scheduler.simulation.SimulatedNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.stream.Collectors;

/*
 * A pod passes the same steps as in production, without the network: kube-scheduler's own check of CPU, memory and the
 * nodes' extended resources, then Filter and Bind in the scheduler's placement engine.
 */
/** Nodes that a policy places pods on, one pod after another. Not thread-safe. */
final class Replay {
    /** A node with what the engine does not track. */
    private static final class NodeState {
        final SimulatedNode node;
        /** By kube-scheduler's count. */
        ResourceVector free;

        FreeCapacity capacity;

        NodeState(SimulatedNode node, FreeCapacity capacity) {
            this.node = node;
            this.free = ResourceVector.of(node);
            this.capacity = capacity;
        }

        String name() {
            return node.name();
        }
    }

    private final Policy policy;
    private final Random random;
    private final SimulatedCluster cluster;
    private final PlacementEngine engine;
    /** In the order of the trace. */
    private final Map<String, NodeState> nodes = new LinkedHashMap<>();

    private final List<NodeState> byName;

    private final long totalGpu;
    private long freeGpu;

    /**
     * Starts with empty nodes.
     *
     * @param workload that the pods are drawn from
     */
    Replay(List<SimulatedNode> nodes, Policy policy, List<TracePod> workload, long seed) {
        this.policy = policy;
        // The seed itself already draws the pods.
        this.random = new Random(new SplittableRandom(seed).nextLong());
        this.cluster = new SimulatedCluster(nodes);
        this.engine = policy.engine(cluster, workload.stream().map(this::demand).toList());
        for (SimulatedNode node : nodes) {
            this.nodes.put(node.name(), new NodeState(node, engine.capacity(node.name())));
        }
        this.byName = this.nodes.values().stream()
                .sorted(Comparator.comparing(NodeState::name))
                .toList();
        this.totalGpu = this.nodes.values().stream()
                .mapToLong(node -> node.capacity.free())
                .sum();
        this.freeGpu = totalGpu;
    }

    /** What a pod requests, in the units of {@link #capacities}. */
    DemandVector demand(TracePod pod) {
        return cluster.demand(pod.request());
    }

    /** Allocated GPU capacity, in thousandths: of each GPU the memory or the cores, whichever is more. */
    long allocated() {
        return totalGpu - freeGpu;
    }

    /** Free capacity of each node, in the order of the trace. */
    List<FreeCapacity> capacities() {
        return nodes.values().stream().map(node -> node.capacity).toList();
    }

    /** What pods hold of each node's GPUs, in the order of the trace and of the node's inventory. */
    List<List<GpuAmount>> usage() {
        return nodes.keySet().stream().map(engine::usage).toList();
    }

    /** Nodes with equal free capacity. */
    record NodeGroup(FreeCapacity capacity, int nodes) {}

    /** All nodes, grouped by their free capacity. */
    List<NodeGroup> groups() {
        return nodes.values().stream()
                .collect(Collectors.groupingBy(
                        node -> node.capacity, LinkedHashMap::new, Collectors.summingInt(node -> 1)))
                .entrySet()
                .stream()
                .map(group -> new NodeGroup(group.getKey(), group.getValue()))
                .toList();
    }

    /** Places a pod; empty if it fits on no node. */
    Optional<PlacedPod> place(TracePod pod) {
        ResourceVector requested = ResourceVector.of(pod.request());
        List<String> candidates = byName.stream()
                .filter(node -> node.free.fits(requested))
                .map(NodeState::name)
                .toList();
        if (candidates.isEmpty()) {
            return Optional.empty(); // kube-scheduler does not call the extender
        }
        PendingPod pending = engine.arrive(pod.request());
        return policy == Policy.RANDOM
                ? placeAtRandom(pending, candidates)
                : engine.reserveBest(pending, candidates).map(node -> bind(pending, node));
    }

    /** Ends a pod. */
    void end(PlacedPod placed) {
        engine.end(placed);
        NodeState node = node(placed.node());
        node.free = node.free.plus(ResourceVector.of(placed.request()));
        update(node);
    }

    private NodeState node(String name) {
        return Optional.ofNullable(nodes.get(name)).orElseThrow();
    }

    private Optional<PlacedPod> placeAtRandom(PendingPod pod, List<String> candidates) {
        List<String> feasible = engine.feasible(pod, candidates);
        if (feasible.isEmpty()) {
            return Optional.empty();
        }
        String node = feasible.get(random.nextInt(feasible.size()));
        return Optional.of(bind(onRandomGpu(pod, node(node)), node));
    }

    /** The pod, restricted to a random GPU that it fits on; a pod with several vGPUs stays unrestricted. */
    private PendingPod onRandomGpu(PendingPod pod, NodeState node) {
        if (!pod.request().requestsOneVgpu()) {
            return pod;
        }
        List<Gpu> gpus = new ArrayList<>(node.node.inventory().gpus());
        Collections.shuffle(gpus, random);
        return gpus.stream()
                .filter(pod.request()::accepts)
                .map(gpu -> pod.onGpu(gpu.uuid()))
                .filter(restricted -> engine.fits(restricted, node.name()))
                .findFirst()
                .orElse(pod);
    }

    private PlacedPod bind(PendingPod pod, String name) {
        PlacedPod placed = engine.bind(pod, name);
        NodeState node = node(name);
        node.free = node.free.minus(ResourceVector.of(pod.request()));
        update(node);
        return placed;
    }

    private void update(NodeState node) {
        freeGpu -= node.capacity.free();
        node.capacity = engine.capacity(node.name());
        freeGpu += node.capacity.free();
    }
}
