package io.aliquot.scheduler.simulate;

import io.aliquot.api.Annotations;
import io.aliquot.api.Gpu;
import io.aliquot.api.Placement;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.ledger.Feasibility;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerListener;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuFreeCapacity;
import io.aliquot.scheduler.placement.GpuModels;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.scoring.FeasibilityCache;
import io.aliquot.scheduler.scoring.NodeScoring;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.stream.Collectors;

/*
 * What production does for a pod, without the wire: kube-scheduler's own check of CPU, memory and the nodes' totals,
 * then Filter (the pod is made known, every node asked, the best one reserved) and Bind (the GPUs are chosen and
 * committed), all by the ledger.
 */
/** Nodes that pods are offered to one by one, in the scheduler's own ledger. Not for several threads. */
final class Replay {
    private static final LedgerListener NOBODY = new LedgerListener() {
        @Override
        public void capacityFreed(String node) {}

        @Override
        public void overallocated(String node, String gpu) {}
    };

    /** What is known of a node besides the ledger. */
    private static final class Host {
        final Node node;
        final FreeCapacity.Shape shape;
        Counted left;

        FreeCapacity room;

        Host(Node node, FreeCapacity.Shape shape) {
            this.node = node;
            this.shape = shape;
            this.left = Counted.of(node);
            this.room = FreeCapacity.of(shape);
        }
    }

    /**
     * A pod that has its node.
     *
     * @param gpus UUIDs of those that it has
     */
    record Placed(String node, Set<String> gpus, PodId id, Counted requests) {}

    private final Contender contender;
    private final Random random;
    private final Ledger ledger;
    private final NodeScoring scoring;
    private final GpuModels models = new GpuModels();
    /** In the order of the trace. */
    private final Map<String, Host> hosts = new LinkedHashMap<>();

    private final List<Host> byName;

    private final long capacity;
    private long free;
    private long pods;

    /**
     * Empty nodes.
     *
     * @param workload that pods are drawn from
     */
    Replay(List<Node> nodes, Contender contender, List<Pod> workload, long seed) {
        this.contender = contender;
        // Not the numbers that the pods were drawn by.
        this.random = new Random(new SplittableRandom(seed).nextLong());
        for (Node node : nodes) {
            Sharing facts = node.facts();
            hosts.put(node.name(), new Host(node, models.shape(facts.cards().list(), facts.allocatable())));
        }
        this.ledger = new Ledger(System::nanoTime, NOBODY);
        this.scoring = new NodeScoring(
                ledger, contender.judge(workload.stream().map(this::demand).toList()));
        for (Host host : hosts.values()) {
            Sharing facts = host.node.facts();
            ledger.putNode(host.node.name(), new Sharing(facts.cards(), contender.placement(), facts.allocatable()));
            ledger.observeBound(own(host.node));
            look(host);
        }
        this.byName = hosts.values().stream()
                .sorted(Comparator.comparing(host -> host.node.name()))
                .toList();
        this.capacity =
                hosts.values().stream().mapToLong(host -> host.room.free()).sum();
        this.free = capacity;
    }

    /** A pod that stands for all that belong to a node. */
    private static BoundPod own(Node node) {
        return new BoundPod(
                new PodId("", "", "of node " + node.name()),
                node.name(),
                0,
                List.of(),
                node.own(),
                0,
                Instant.EPOCH,
                Instant.EPOCH,
                Duration.ZERO,
                Instant.MAX,
                "");
    }

    /** What a pod asks for, in the units that rooms are counted in. */
    DemandVector demand(Pod pod) {
        return models.demand(ask(pod));
    }

    private static PodGpuRequest ask(Pod pod) {
        return pod.ask().requesting(pod.requests());
    }

    /** GPU that is allocated, in thousandths: of each the memory or the cores, whichever is more. */
    long allocated() {
        return capacity - free;
    }

    /** What is left of each node, in the order of the trace. */
    List<FreeCapacity> rooms() {
        return hosts.values().stream().map(host -> host.room).toList();
    }

    /** What pods hold of each node's GPUs, in the order of the trace and of the node's inventory. */
    List<List<GpuAmount>> held() {
        return hosts.keySet().stream()
                .map(node -> ledger.view(node).orElseThrow().gpus().stream()
                        .map(GpuFreeCapacity::taken)
                        .toList())
                .toList();
    }

    /** A room and how many nodes have it. */
    record Alike(FreeCapacity room, int nodes) {}

    /** What is left of the nodes. */
    List<Alike> nodes() {
        return hosts.values().stream()
                .collect(Collectors.groupingBy(host -> host.room, LinkedHashMap::new, Collectors.summingInt(host -> 1)))
                .entrySet()
                .stream()
                .map(room -> new Alike(room.getKey(), room.getValue()))
                .toList();
    }

    /** Places a pod; empty if it fits nowhere. */
    Optional<Placed> offer(Pod pod) {
        PodGpuRequest ask = ask(pod);
        var id = new PodId("", pod.name(), Long.toString(pods++));
        Counted requests = Counted.of(ask);
        List<Host> passed =
                byName.stream().filter(host -> host.left.holds(requests)).toList();
        if (passed.isEmpty()) {
            return Optional.empty(); // kube-scheduler doesn't ask
        }
        if (!ask.containers().isEmpty()) {
            scoring.observe(id.uid(), ask);
        }
        return contender == Contender.RANDOM ? any(id, ask, passed) : best(id, ask, passed);
    }

    /** A pod ends. */
    void end(Placed placed) {
        ledger.observeEnded(placed.id().uid());
        Host host = host(placed.node());
        host.left = host.left.plus(placed.requests());
        look(host);
    }

    private Host host(String node) {
        return Optional.ofNullable(hosts.get(node)).orElseThrow();
    }

    private Optional<Placed> best(PodId id, PodGpuRequest ask, List<Host> passed) {
        Placement policy = ask.nodePlacement().orElse(contender.placement());
        FeasibilityCache offers = scoring.forPod(id.uid(), ask, policy);
        List<String> nodes = passed.stream().map(host -> host.node.name()).toList();
        Optional<Host> best = offers.best(nodes, 1, (node, refuses) -> {}).stream()
                .map(this::host)
                .findFirst();
        best.ifPresent(host -> ledger.reserve(id, host.node.name(), ask));
        return best.map(host -> bind(id, ask, ask, host));
    }

    private Optional<Placed> any(PodId id, PodGpuRequest ask, List<Host> passed) {
        FeasibilityCache offers = scoring.forPod(id.uid(), ask, Placement.BINPACK);
        List<Host> fitting = passed.stream()
                .filter(host -> offers.of(host.node.name()) instanceof Feasibility.Fits)
                .toList();
        if (fitting.isEmpty()) {
            return Optional.empty();
        }
        Host drawn = fitting.get(random.nextInt(fitting.size()));
        return Optional.of(bind(id, ask, onAnyGpu(id, ask, drawn), drawn));
    }

    /** The same pod, were it to insist on one of those GPUs that hold it; one that asks for several as it is. */
    private PodGpuRequest onAnyGpu(PodId id, PodGpuRequest ask, Host host) {
        if (!ask.wantsOneGpu()) {
            return ask;
        }
        List<Gpu> gpus = new ArrayList<>(host.node.facts().inventory().gpus());
        Collections.shuffle(gpus, random);
        return gpus.stream()
                .filter(ask::takes)
                .map(gpu -> PodGpuRequest.of(ask.containers(), Map.of(Annotations.USE_GPU_UUID, gpu.uuid()), false)
                        .requesting(ask.requests()))
                .filter(one -> ledger.feasibility(host.node.name(), id.uid(), one) instanceof Feasibility.Fits)
                .findFirst()
                .orElse(ask);
    }

    private Placed bind(PodId id, PodGpuRequest ask, PodGpuRequest asBound, Host host) {
        var granted = (Granted) ledger.commit(id, host.node.name(), asBound, 1);
        Counted requests = Counted.of(ask);
        host.left = host.left.minus(requests);
        look(host);
        Set<String> gpus = granted.containers().values().stream()
                .flatMap(vgpus -> vgpus.list().stream())
                .map(vgpu -> vgpu.uuid())
                .collect(Collectors.toSet());
        return new Placed(host.node.name(), gpus, id, requests);
    }

    private void look(Host host) {
        List<GpuFreeCapacity> gpus =
                ledger.view(host.node.name()).map(NodeView::gpus).orElseThrow();
        free -= host.room.free();
        host.room = FreeCapacity.of(host.shape, host.left.host(), gpus);
        free += host.room.free();
    }
}
