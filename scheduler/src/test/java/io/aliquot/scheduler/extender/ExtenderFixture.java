package io.aliquot.scheduler.extender;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.cluster.FakeCluster;
import io.aliquot.scheduler.cluster.LabelSelector;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.ContainerShare;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerEvents;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.pending.UnboundPod;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeRuntime;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.preemption.Budgets.Budget;
import io.aliquot.scheduler.recovery.WriteReconciler;
import io.aliquot.scheduler.scoring.NodeScoring;
import io.aliquot.scheduler.scoring.fragmentation.Fragmentation;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import tools.jackson.databind.json.JsonMapper;

/** Two nodes with two GPUs of 80000 MiB each, and the extender's verbs on them. */
public final class ExtenderFixture {
    public static final int MEMORY = 80_000;
    private static final long START = Long.MAX_VALUE - Duration.ofSeconds(2).toNanos();
    private static final JsonMapper JSON = Wire.mapper();

    private int holders;

    /** Like {@link System#nanoTime}, it can overflow; here it does so within each test in which two seconds pass. */
    public final AtomicLong now = new AtomicLong(START);

    public final FakeCluster cluster = new FakeCluster();
    public final LedgerEvents events = new LedgerEvents();
    public final Ledger ledger = new Ledger(now::get, events);
    public final NodeScoring scoring = new NodeScoring(ledger, new Fragmentation());
    public final PendingPods pending = new PendingPods(now::get);
    public final WriteReconciler reconciler = new WriteReconciler(ledger, cluster);
    final Binder binder = new Binder(ledger, cluster, pending, reconciler, now::get);
    public final Budgets budgets = new Budgets();
    public final SimpleMeterRegistry metrics = new SimpleMeterRegistry();

    public ExtenderFixture() {
        node(ledger, 1);
        node(ledger, 2);
        events.takeFreed();
    }

    /** Calls filter, for tests of other packages; returns the nodes that fit. */
    public List<String> filter(String name, String limits, int priority, String policy, String... nodes) {
        return filterAndPrioritize(Placement.BINPACK, 100)
                .filter(pod(name, limits, priority, policy), List.of(nodes))
                .nodeNames();
    }

    /** As {@link #filter}, for a pod with these fields in its spec. */
    public List<String> filterWithSpec(String name, String limits, String fields, String... nodes) {
        return filterAndPrioritize(Placement.BINPACK, 100)
                .filter(podWithSpec(name, limits, fields), List.of(nodes))
                .nodeNames();
    }

    /** Calls filter, for tests of other packages; returns the fitting nodes, or the unresolvable ones with their reasons. */
    public String filterResult(String name, String limits, String... nodes) {
        Wire.FilterResult result =
                filterAndPrioritize(Placement.BINPACK, 100).filter(pod(name, limits), List.of(nodes));
        return result.nodeNames().isEmpty()
                ? "unresolvable " + new TreeMap<>(result.failedAndUnresolvableNodes())
                : result.nodeNames().toString();
    }

    /** Calls bind; returns the error for kube-scheduler. */
    public String bind(String name, String node) {
        return binder.bind(id(name), node).error();
    }

    /** A pod with this priority and preemptionPolicy. */
    public static UnboundPod unbound(String name, String limits, int priority, String policy) {
        return unbound(pod(name, limits, priority, policy));
    }

    /** The pod of this JSON. */
    public static UnboundPod unbound(String json) {
        return unbound(read(json));
    }

    private static UnboundPod unbound(Wire.Pod pod) {
        return pod.requesting(pod.template().request());
    }

    FilterAndPrioritize filterAndPrioritize(Placement nodes, int nodesPerFilter) {
        return new FilterAndPrioritize(ledger, scoring, cluster, pending, nodes, nodesPerFilter);
    }

    public static void node(Ledger ledger, int number, Gpu... gpus) {
        Gpu[] those = gpus.length > 0 ? gpus : new Gpu[] {Gpus.gpu(number, 0, MEMORY), Gpus.gpu(number, 1, MEMORY)};
        ledger.putNode(
                "n" + number,
                new NodeFacts.Sharing(Gpus.inventory(10, those), Placement.BINPACK, new HostResources(1000, 1000)));
    }

    /** Gives a node's container runtime these handlers. */
    public void runtime(int number, NodeRuntime runtime) {
        String name = "n" + number;
        var facts = (NodeFacts.Sharing) ledger.view(name).orElseThrow().facts();
        ledger.putNode(name, new NodeFacts.Sharing(facts.gpus(), facts.gpuPlacement(), facts.allocatable(), runtime));
    }

    public Instant instant() {
        return Instant.EPOCH.plusNanos(now.get() - START);
    }

    public void pass(Duration time) {
        now.addAndGet(time.toNanos());
    }

    public void takenElsewhere(String pod, int node, int gpu, int memoryMiB) {
        var amount = new GpuAmount(memoryMiB, 0, 1, false);
        ledger.observeBound(BoundPods.of(id(pod), "n" + node, 1, BoundPods.main(Gpus.uuid(node, gpu), amount)));
    }

    /** Adds a bound pod to each GPU of nodes 1 and 2: old-1-0, old-1-1, old-2-0 and old-2-1. */
    public void takenOnEachGpu(int memoryMiB) {
        for (int gpu : List.of(0, 1)) {
            takenElsewhere("old-1-" + gpu, 1, gpu, memoryMiB);
            takenElsewhere("old-2-" + gpu, 2, gpu, memoryMiB);
        }
    }

    /** Adds a bound pod with this priority and allocation; each pod is younger than the one before. */
    public BoundPod holds(String pod, int node, int gpu, int memoryMiB, int priority) {
        return holds(pod, node, priority, HostResources.NONE, share(node, gpu, memoryMiB));
    }

    public BoundPod holds(String pod, int node, int priority, HostResources requests, ContainerShare... shares) {
        BoundPod bound = BoundPods.of(id(pod), "n" + node, priority, holders++, requests, shares);
        ledger.observeBound(bound);
        return bound;
    }

    public static ContainerShare share(int node, int gpu, int memoryMiB) {
        return BoundPods.main(Gpus.uuid(node, gpu), new GpuAmount(memoryMiB, 0, 1, false));
    }

    /** Marks the pod as terminating. */
    public BoundPod leaves(BoundPod pod) {
        BoundPod leaving = BoundPods.leaving(pod, instant().plus(BoundPods.GRACE));
        ledger.observeBound(leaving);
        return leaving;
    }

    /** Adds a disruption budget for these pods. */
    public void budget(String app, int allowed, String... pods) {
        for (String pod : pods) {
            budgets.putPod("uid-" + pod, Map.of("app", app));
        }
        budgets.putBudget(
                new Budget("default", app, LabelSelector.of(Map.of("app", app), List.of()), allowed, Set.of()));
    }

    public static BoundPod bound(String pod, int node, long version, int memoryMiB) {
        var amount = new GpuAmount(memoryMiB, 0, 1, false);
        return BoundPods.of(id(pod), "n" + node, version, BoundPods.main(Gpus.uuid(node, 0), amount));
    }

    public static PodId id(String name) {
        return new PodId("default", name, "uid-" + name);
    }

    /** The JSON of a pod as kube-scheduler sends it. */
    public static String podJson(String name, String limits, String more) {
        return """
                {"metadata": {"name": "%1$s", "namespace": "default", "uid": "uid-%1$s", "resourceVersion": "1", "managedFields": [{}]%3$s},
                 "spec": {"schedulerName": "aliquot-scheduler", "containers": [
                   {"name": "main", "image": "x", "resources": {"limits": {%2$s, "cpu": "1"}}}]}, "status": {}}""".formatted(name, limits, more);
    }

    /** A pod with this priority and preemptionPolicy, as filter reads it. */
    static Wire.Pod pod(String name, String limits, int priority, String policy) {
        return podWithSpec(name, limits, "\"priority\": " + priority + ", \"preemptionPolicy\": \"" + policy + "\"");
    }

    /** A pod with these fields in its spec. */
    static Wire.Pod podWithSpec(String name, String limits, String fields) {
        return read(podJson(name, limits, "").replace("\"spec\": {", "\"spec\": {" + fields + ", "));
    }

    /** Reads a pod from the JSON that kube-scheduler sends. */
    static Wire.Pod read(String json) {
        return args("{\"Pod\": " + json + "}").pod();
    }

    /** The arguments of filter and prioritize. */
    static Wire.Args args(String json) {
        return JSON.readValue(json.getBytes(StandardCharsets.UTF_8), Wire.Args.class);
    }

    static Wire.Pod pod(String name, String limits) {
        return pod(name, limits, "");
    }

    static Wire.Pod pod(String name, String limits, String more) {
        return read(podJson(name, limits, more));
    }

    public static String mebibytes(int amount) {
        return "\"aliquot.io/vgpu\": \"1\", \"nvidia.com/gpumem\": \"" + amount + "\"";
    }
}
