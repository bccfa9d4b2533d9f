package io.aliquot.scheduler.extender;

import static io.aliquot.api.nodes.SharingMode.CORE_MEMORY;
import static io.aliquot.api.nodes.SharingMode.EXCLUSIVE;
import static io.aliquot.scheduler.placement.Gpus.gpu;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.NodeSharing;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.api.pods.Fence;
import io.aliquot.api.pods.Placement;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.pods.Vgpus;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.PodState;
import io.aliquot.scheduler.cluster.Cluster.WriteOutcome;
import io.aliquot.scheduler.cluster.NodeId;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.ContainerShare;
import io.aliquot.scheduler.ledger.ContainerShareChange;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerEvents;
import io.aliquot.scheduler.ledger.LedgerInvariants;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.ledger.Quota;
import io.aliquot.scheduler.ledger.QuotaAmount;
import io.aliquot.scheduler.ledger.QuotaResource;
import io.aliquot.scheduler.ledger.QuotaUsage;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.pending.PendingPods.FilterOutcome;
import io.aliquot.scheduler.pending.PreemptionRank;
import io.aliquot.scheduler.pending.UnboundPod;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuCapacity;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeGpus;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.placement.PodScopes;
import io.aliquot.scheduler.recovery.RecoveryAccess;
import io.aliquot.scheduler.recovery.WriteReconciler;
import io.aliquot.scheduler.resize.Resizer;
import io.aliquot.scheduler.scoring.NodeRanking;
import io.aliquot.scheduler.scoring.NodeScoring;
import io.aliquot.scheduler.scoring.fragmentation.Fragmentation;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * A cluster with faults: an API server, and two replicas with their ledgers, binders and resizers. The objects of the
 * API server are the truth. The API server refuses requests, loses them, executes them without an answer, or executes
 * them long after the client has timed out. Other events happen during a request. Watches lag, repeat events and break.
 * A new leader takes over before the old one notices, and replicas restart with an empty ledger. Nodes and GPUs appear
 * and disappear, and their scaling, slots, sharing mode and cordons change. Quotas of namespaces appear, change and
 * disappear, and a replica may learn of it late.
 */
final class FaultModel {
    private static final int GPUS = 2;
    private static final int MEMORY = 1000;
    private static final int MAX_SLOTS = 5;
    private static final int MAX_DEPTH = 2;
    private static final List<Scaling> SCALINGS = List.of(new Scaling(50), new Scaling(150), new Scaling(200));
    private static final SharingMode[] SHARES = SharingMode.values();
    private static final List<PodGpuRequest> REQUESTS = List.of(
            Gpus.request("APP:main: gpumem=100"),
            Gpus.request("APP:main: gpumem=400 gpucores=40").withHostRequests(new HostResources(30, 70)),
            Gpus.request("APP:main: gpu=2 gpumem=300"),
            Gpus.request("APP:main: gpu=1"),
            Gpus.request("APP:main: gpumem-percentage=70"),
            Gpus.request("INIT:warm: gpumem=600", "SIDECAR:side: gpumem=100", "APP:main: gpu=2 gpumem=250 gpucores=10"),
            Gpus.request("APP:a: gpumem=500", "APP:b: gpumem=300 gpucores=60"),
            Gpus.request(
                            Map.of(
                                    "aliquot.io/node-placement",
                                    "fragmentation",
                                    "aliquot.io/gpu-placement",
                                    "fragmentation"),
                            "APP:main: gpumem=250")
                    .withHostRequests(new HostResources(200, 100)));

    /** Counts the occurrences of each kind of event that the test must cover. */
    static final class Counts {
        private final Map<String, Integer> counts = new TreeMap<>();

        void count(String what) {
            counts.merge(what, 1, Integer::sum);
        }

        Map<String, Integer> all() {
            return counts;
        }

        @Override
        public String toString() {
            return counts.toString();
        }
    }

    /** An immutable pod in its current or an earlier version. */
    private record Pod(
            PodId id,
            PodGpuRequest ask,
            long version,
            String node,
            List<ContainerShare> shares,
            boolean leaves,
            boolean ended,
            long boundAt) {
        Pod leaving() {
            return new Pod(id, ask, version, node, shares, true, ended, boundAt);
        }

        Pod over() {
            return new Pod(id, ask, version, node, shares, leaves, true, boundAt);
        }

        Pod at(long newVersion) {
            return new Pod(id, ask, newVersion, node, shares, leaves, ended, boundAt);
        }

        BoundPod bound() {
            return new BoundPod(
                    id,
                    node,
                    version,
                    shares,
                    ask.hostRequests(),
                    PodScopes.NONE,
                    0,
                    Instant.EPOCH,
                    Instant.ofEpochSecond(boundAt),
                    BoundPods.GRACE,
                    leaves ? Instant.EPOCH : Instant.MAX);
        }

        boolean holds() {
            return !node.isEmpty() && !ended;
        }
    }

    /**
     * A write that a replica has sent.
     *
     * @param node empty for annotations only
     * @param shares the new allocations of the pod; empty if they do not change
     * @param grants indexes into {@link #granted}, by GPU
     * @param quotaGrants indexes into {@link #grantedQuotas}, by the resources of which the pod gets more
     */
    private record Request(
            PodId pod,
            long version,
            String node,
            Map<String, String> annotations,
            List<ContainerShare> shares,
            Map<String, Integer> grants,
            Map<QuotaResource, Integer> quotaGrants) {}

    private record Event(Pod pod, boolean deleted) {}

    /** A force-deleted pod and the time until which its containers may run. */
    private record Ghost(Pod pod, long until) {}

    private final Random random;
    private final Counts counts;
    private final int nodeCount;
    private final int namespaces;
    private final AtomicLong now = new AtomicLong();
    private final Map<String, Pod> pods = new LinkedHashMap<>();
    private final List<Request> inFlight = new ArrayList<>();
    private final Map<String, Ghost> ghosts = new LinkedHashMap<>();
    private final Map<String, NodeFacts> nodes = new HashMap<>();
    /**
     * The capacity of the GPU at each grant. All grants on that GPU up to and including this one must fit in it.
     */
    private final List<GpuCapacity> granted = new ArrayList<>();
    /** For each pod, its last grant on each of its GPUs: an index into {@link #granted}. */
    private final Map<String, Map<String, Integer>> grants = new HashMap<>();

    /** By namespace. */
    private final Map<String, Quota> quotas = new HashMap<>();
    /** The quota that the granting replica knew at each grant. All grants in its namespace up to it must fit in it. */
    private final List<Quota> grantedQuotas = new ArrayList<>();
    /** For each pod, the last grant of more of each resource: an index into {@link #grantedQuotas}. */
    private final Map<String, Map<QuotaResource, Integer>> quotaGrants = new HashMap<>();

    private final List<Replica> replicas = new ArrayList<>();
    private long revision = 1;
    private int created;
    private int depth;
    private boolean calm;
    /** The Lease; {@link #believed} is the copy that the admission policy checks fences against. */
    private Fence lease = new Fence("no-leader", 0);

    private Fence believed = lease;
    private int leader;

    /** A cluster with 3 nodes and 3 namespaces. */
    FaultModel(Random random, Counts counts) {
        this(random, counts, 3, 3);
    }

    FaultModel(Random random, Counts counts, int nodeCount, int namespaces) {
        this.random = random;
        this.counts = counts;
        this.nodeCount = nodeCount;
        this.namespaces = namespaces;
    }

    void run(int steps) {
        for (int node = 0; node < nodeCount; node++) {
            changeNode(node);
        }
        replicas.add(new Replica("r0"));
        replicas.add(new Replica("r1"));
        failOver();
        for (int i = 0; i < steps; i++) {
            step();
        }
        settleAll();
        replicas.forEach(this::checkAgreement);
        for (Pod pod : List.copyOf(pods.values())) {
            change(pod.over());
            delete(pod.id.uid());
        }
        settleAll();
        for (Replica replica : replicas) {
            for (String node : replica.ledger.nodeNames()) {
                NodeView view = replica.ledger.view(node).orElseThrow();
                assertThat(view.holdings()).isEmpty();
                assertThat(view.gpus())
                        .allSatisfy(room -> assertThat(room.allocated()).isEqualTo(GpuAmount.NOTHING));
            }
        }
    }

    private void step() {
        Replica replica = replicas.get(random.nextInt(4) == 0 ? 1 - leader : leader);
        switch (random.nextInt(29)) {
            case 0, 1, 2 -> create();
            case 3, 4 -> pick(unbound()).forEach(replica::filter);
            case 5, 6, 7, 8 -> pick(unbound()).forEach(replica::bind);
            case 9, 10 -> pick(holding()).forEach(replica::resize);
            case 11 -> pick(holding()).forEach(this::end);
            case 12 -> pick(pods.values()).forEach(pod -> rarely(2, () -> end(pod)));
            case 13 -> pick(pods.values()).forEach(this::touch);
            case 14 -> rarely(3, () -> pick(unbound()).forEach(pod -> delete(pod.id.uid())));
            case 15 -> rarely(3, () -> pick(holding()).forEach(this::deleteByForce));
            case 16 -> pick(unbound()).forEach(replica::evictFor);
            case 17, 18, 19, 20 -> {
                Replica one = replicas.get(random.nextInt(2));
                for (int i = random.nextInt(12); i >= 0; i--) {
                    one.deliver();
                }
            }
            case 21 ->
                pick(inFlight).forEach(request -> {
                    inFlight.remove(request);
                    if (FaultModel.this.apply(request) instanceof WriteOutcome.Done) {
                        counts.count("request carried out late");
                    }
                });
            case 22 -> rarely(10, () -> replicas.get(random.nextInt(2)).loseWatch());
            case 23 -> {
                rarely(20, this::failOver);
                rarely(2, () -> believed = lease);
                replicas.get(leader).takeOver();
                rarely(40, () -> restart(random.nextInt(2)));
            }
            case 24 -> {
                rarely(4, () -> changeNode(random.nextInt(nodeCount)));
                pass(Duration.ofMillis(random.nextInt(4000)));
            }
            case 25 -> rarely(2, replica::audit);
            case 27 -> {
                rarely(2, this::changeQuota);
                replicas.forEach(one -> rarely(3, one::learnQuotas));
            }
            case 26 -> rarely(4, () -> shareOtherwise(random.nextInt(nodeCount)));
            default -> replica.reconciler.reconcileAll();
        }
        checkTruth();
        rarely(10, () -> replicas.forEach(one -> LedgerInvariants.recount(one.ledger)));
    }

    private void rarely(int one, Runnable event) {
        if (random.nextInt(one) == 0) {
            event.run();
        }
    }

    /** Other events happen while a client waits for an answer. */
    private void meanwhile() {
        if (!calm && depth < MAX_DEPTH && random.nextInt(4) == 0) {
            depth++;
            step();
            depth--;
        }
    }

    private void create() {
        var id = new PodId("ns" + random.nextInt(namespaces), "p" + created, "uid-" + created++);
        counts.count("pod created");
        change(new Pod(id, REQUESTS.get(random.nextInt(REQUESTS.size())), 0, "", List.of(), false, false, 0));
    }

    private void changeQuota() {
        String namespace = "ns" + random.nextInt(namespaces);
        if (random.nextInt(4) == 0) {
            quotas.remove(namespace);
        } else {
            var hard = new HashMap<QuotaResource, Long>();
            hard.put(QuotaResource.MEMORY, (long) random.nextInt(3 * MEMORY));
            rarely(3, () -> hard.put(QuotaResource.CORES, (long) random.nextInt(200)));
            rarely(3, () -> hard.put(QuotaResource.VGPUS, (long) random.nextInt(8)));
            quotas.put(namespace, new Quota(namespace, "gpus", "uid", hard, List.of()));
        }
        counts.count("quota changed");
        if (quotas.containsKey(namespace)
                && what().anyMatch(what -> exceeds(namespace, what, Objects.requireNonNull(quotas.get(namespace))))) {
            counts.count("quota below what is held");
        }
        replicas.forEach(one -> rarely(2, one::learnQuotas));
    }

    private static Stream<QuotaResource> what() {
        return Stream.of(QuotaResource.values());
    }

    private boolean exceeds(String namespace, QuotaResource what, Quota quota) {
        return what.of(held(namespace)) > quota.hard().getOrDefault(what, Long.MAX_VALUE);
    }

    /** What the pods of a namespace hold, by their annotations. */
    private QuotaAmount held(String namespace) {
        return holding().stream()
                .filter(pod -> pod.id.namespace().equals(namespace))
                .map(pod -> BoundPods.quotaAmount(pod.shares))
                .reduce(QuotaAmount.NONE, BoundPods::sum);
    }

    private List<Pod> unbound() {
        return pods.values().stream()
                .filter(pod -> pod.node.isEmpty() && !pod.ended)
                .toList();
    }

    private List<Pod> holding() {
        return pods.values().stream().filter(Pod::holds).toList();
    }

    // The API server.

    /** Stores the pod under a new version. */
    private void change(Pod pod) {
        Pod changed = pod.at(++revision);
        pods.put(pod.id.uid(), changed);
        replicas.forEach(replica -> replica.untold.add(new Event(changed, false)));
    }

    private void touch(Pod pod) {
        change(pod);
    }

    private void end(Pod pod) {
        change(pod.over());
        rarely(2, () -> delete(pod.id.uid()));
    }

    private void delete(String uid) {
        Pod pod = pods.remove(uid);
        if (pod != null) {
            Pod last = pod.at(++revision);
            replicas.forEach(replica -> replica.untold.add(new Event(last, true)));
        }
    }

    /** The allocation outlives the pod only on replicas that knew the pod. */
    private void deleteByForce(Pod pod) {
        String uid = pod.id.uid();
        if (replicas.stream().allMatch(replica -> replica.holds(pod))) {
            ghosts.put(uid, new Ghost(pod, now.get() + BoundPods.GRACE.toNanos()));
            counts.count("share of a pod deleted by force held");
        }
        delete(uid);
    }

    private WriteOutcome apply(Request request) {
        Pod pod = pods.get(request.pod.uid());
        boolean binds = !request.node.isEmpty();
        String fence = request.annotations.get(binds ? Annotations.FENCE : Annotations.RESIZE_FENCE);
        if (fence != null && !fence.equals(believed.print())) {
            counts.count("stale fence refused");
            return new WriteOutcome.Refused("fence");
        }
        if (pod == null) {
            return new WriteOutcome.Conflicts("uid");
        }
        if (pod.version != request.version || (binds && (!pod.node.isEmpty() || pod.leaves))) {
            return new WriteOutcome.Conflicts("version");
        }
        change(new Pod(
                pod.id,
                pod.ask,
                0,
                binds ? request.node : pod.node,
                request.shares.isEmpty() ? pod.shares : request.shares,
                pod.leaves,
                pod.ended,
                binds ? revision : pod.boundAt));
        grants.computeIfAbsent(pod.id.uid(), any -> new HashMap<>()).putAll(request.grants);
        quotaGrants.computeIfAbsent(pod.id.uid(), any -> new HashMap<>()).putAll(request.quotaGrants);
        if (fence != null && !fence.equals(lease.print())) {
            counts.count("stale fence slipped through");
        }
        return new WriteOutcome.Done();
    }

    /** Builds the write and records its grants. */
    private Request request(Replica replica, PodId id, long version, String node, Map<String, String> annotations) {
        Pod pod = pods.get(id.uid());
        if (pod == null || pod.version != version) {
            return new Request(id, version, node, annotations, List.of(), Map.of(), Map.of()); // conflicts when applied
        }
        var shares = new ArrayList<ContainerShare>();
        pod.ask.containers().forEach(container -> {
            String text = annotations.get(Annotations.vgpu(container.name()));
            if (text != null) {
                shares.add(new ContainerShare(container.name(), container.kind(), Vgpus.parse(text)));
            }
        });
        shares.forEach(share -> checkParts(pod, node.isEmpty() ? pod.node : node, share));
        var decided = new HashMap<String, Integer>();
        Map<String, GpuAmount> before = pod.bound().perGpu();
        new Pod(pod.id, pod.ask, 0, node, shares, false, false, 0)
                .bound()
                .perGpu()
                .forEach((gpu, amount) -> {
                    if (!node.isEmpty() || grows(before.getOrDefault(gpu, GpuAmount.NOTHING), amount)) {
                        GpuCapacity card = card(node.isEmpty() ? pod.node : node, gpu);
                        assertThat(card.gpu().healthy() && !card.cordoned())
                                .as("%s is allocated a share of %s", pod.id, gpu)
                                .isTrue();
                        assertThat(node.isEmpty() || amount.exclusive() || card.sharingMode() != EXCLUSIVE)
                                .as("%s is allocated a share of %s, a whole card", pod.id, gpu)
                                .isTrue();
                        decided.put(gpu, granted.size());
                        granted.add(card);
                    }
                });
        QuotaAmount after = BoundPods.quotaAmount(shares);
        QuotaAmount had = BoundPods.quotaAmount(pod.shares);
        var more = new HashMap<QuotaResource, Integer>();
        what().filter(what -> what.of(after) > what.of(had)).forEach(what -> more.put(what, grantedQuotas.size()));
        grantedQuotas.add(Objects.requireNonNullElse(
                replica.knownQuotas.get(id.namespace()),
                new Quota(id.namespace(), "none", "uid", Map.of(), List.of())));
        return new Request(pod.id, version, node, annotations, shares, decided, more);
    }

    /** No container gets more memory than its GPU has, nor cores on a GPU that is shared by memory. */
    private void checkParts(Pod pod, String node, ContainerShare share) {
        for (Vgpu vgpu : share.vgpus().list()) {
            GpuAmount before = pod.shares.stream()
                    .filter(present -> present.container().equals(share.container()))
                    .flatMap(present -> present.vgpus().list().stream())
                    .filter(present -> present.uuid().equals(vgpu.uuid()))
                    .map(GpuAmount::of)
                    .findFirst()
                    .orElse(GpuAmount.NOTHING);
            if (vgpu.memoryMiB() > before.memoryMiB()) {
                assertThat(vgpu.memoryMiB())
                        .as("memory of %s on GPU %s", pod.id, vgpu.uuid())
                        .isLessThanOrEqualTo(card(node, vgpu.uuid()).gpu().memoryMiB());
            }
            if (vgpu.cores() > before.cores()) {
                assertThat(card(node, vgpu.uuid()).sharingMode())
                        .as("cores of %s on GPU %s", pod.id, vgpu.uuid())
                        .isNotEqualTo(SharingMode.MEMORY);
            }
        }
    }

    private static boolean grows(GpuAmount before, GpuAmount after) {
        return after.memoryMiB() > before.memoryMiB() || after.cores() > before.cores();
    }

    private GpuCapacity card(String node, String gpu) {
        return ((NodeFacts.Sharing) Objects.requireNonNull(nodes.get(node)))
                .gpus().list().stream()
                        .filter(card -> card.gpu().uuid().equals(gpu))
                        .findFirst()
                        .orElseThrow();
    }

    private void failOver() {
        leader = 1 - leader;
        lease = new Fence("r" + leader, lease.transitions() + 1);
        counts.count("failover");
    }

    private void restart(int number) {
        replicas.set(number, new Replica("r" + number));
        ghosts.clear(); // no watch reports deleted pods to a new replica
        if (number == leader && random.nextBoolean()) {
            failOver();
        } else if (number == leader) { // its kube-scheduler still leads; the extender increments leaseTransitions
            lease = new Fence("r" + leader, lease.transitions() + 1);
            counts.count("restart of the leader's extender alone");
        }
        counts.count("restart");
    }

    private void changeNode(int number) {
        NodeFacts facts = new NodeFacts.Unavailable("for a while");
        if (calm || random.nextInt(10) > 0) {
            var gpus = new ArrayList<Gpu>();
            for (int i = 0; i < GPUS; i++) {
                if (calm || random.nextInt(8) > 0) {
                    gpus.add(gpu(number, i, MEMORY, calm || random.nextInt(8) > 0));
                }
            }
            int slots = calm ? MAX_SLOTS : 1 + random.nextInt(MAX_SLOTS);
            facts = facts(number, slots, gpus);
        }
        nodes.put("n" + number, facts);
        countOversold(facts);
        for (Replica replica : replicas) {
            if (!calm && random.nextInt(4) == 0) {
                replica.ledger.removeNode("n" + number);
            }
            replica.ledger.putNode("n" + number, facts);
            replica.ledger.setAgentReady("n" + number, calm || random.nextInt(8) > 0);
        }
    }

    private NodeFacts facts(int number, int slots, List<Gpu> gpus) {
        var inventory = new Inventory(new VisibleDevices("{uuid}"), scaling(), scaling(), slots, gpus);
        return new NodeFacts.Sharing(
                new NodeGpus(inventory, sharing(), cordoned(number)), Placement.BINPACK, new HostResources(1000, 1000));
    }

    /** Changes settings that an administrator may change at run time. */
    private void shareOtherwise(int number) {
        String node = "n" + number;
        if (nodes.get(node) instanceof NodeFacts.Sharing sharing) {
            NodeFacts facts = facts(
                    number, sharing.inventory().slots(), sharing.inventory().gpus());
            nodes.put(node, facts);
            countOversold(facts);
            replicas.forEach(replica -> replica.ledger.putNode(node, facts));
        }
    }

    private void countOversold(NodeFacts facts) {
        if (facts instanceof NodeFacts.Sharing sharing) {
            Map<String, long[]> sums = sums(false);
            for (GpuCapacity card : sharing.gpus().list()) {
                long[] sum = sums.getOrDefault(card.gpu().uuid(), new long[6]);
                if (sum[0] > card.memoryMiB() || sum[1] > card.cores()) {
                    counts.count("GPU with less than pods hold");
                }
            }
        }
    }

    private Scaling scaling() {
        return calm || random.nextInt(3) > 0 ? Scaling.ONE : SCALINGS.get(random.nextInt(SCALINGS.size()));
    }

    private NodeSharing sharing() {
        return new NodeSharing(
                sharingMode(),
                calm || random.nextInt(3) > 0
                        ? Map.of()
                        : Map.of(
                                String.valueOf(random.nextInt(GPUS)),
                                new NodeSharing.OfGpu(sharingMode(), 1 + random.nextInt(3))));
    }

    private SharingMode sharingMode() {
        return calm || random.nextInt(3) > 0 ? CORE_MEMORY : SHARES[random.nextInt(SHARES.length)];
    }

    private Set<String> cordoned(int number) {
        return calm || random.nextInt(4) > 0 ? Set.of() : Set.of(Gpus.uuid(number, random.nextInt(GPUS)));
    }

    private void pass(Duration time) {
        now.addAndGet(time.toNanos());
        replicas.forEach(replica -> replica.ledger.expire());
        ghosts.values().removeIf(ghost -> ghost.until <= now.get());
        for (Replica replica : replicas) {
            for (int node = 0; node < nodeCount; node++) {
                reportPods(replica, "n" + node);
            }
        }
    }

    private void reportPods(Replica replica, String node) {
        var uids = new HashSet<String>();
        Stream.concat(pods.values().stream(), ghosts.values().stream().map(Ghost::pod))
                .filter(pod -> pod.node.equals(node) && !pod.ended)
                .forEach(pod -> uids.add(pod.id.uid()));
        var report = new UsageReport(Instant.EPOCH, node, List.of(), List.of(), List.of());
        replica.ledger
                .observe(report.withPods(Optional.of(uids)), now.get())
                .forEach(pod -> counts.count("share of a deleted pod ended"));
    }

    /** Completes all requests and delivers all events. */
    private void settleAll() {
        calm = true;
        List.copyOf(inFlight).forEach(this::apply);
        inFlight.clear();
        for (int node = 0; node < nodeCount; node++) {
            changeNode(node);
        }
        for (Replica replica : replicas) {
            while (!replica.untold.isEmpty()) {
                replica.deliver();
            }
        }
        pass(Ledger.PREEMPTOR_RESERVATION_TIME.plus(BoundPods.GRACE));
        for (Replica replica : replicas) {
            replica.learnQuotas();
            replica.reconciler.reconcileAll(); // may find a resize that made a share smaller
        }
        for (int i = 0; i < 4; i++) {
            pass(Duration.ofSeconds(10));
        }
    }

    // Invariants.

    private void checkTruth() {
        var sums = sums(true);
        sums.forEach((gpu, sum) -> {
            // The last grant on the GPU must fit beside the others.
            GpuCapacity card = granted.get((int) sum[5]);
            if (sum[0] > card.memoryMiB() || sum[1] > card.cores() || sum[2] > card.slots()) {
                throw new AssertionError("%s has %d MiB, %d %% and %d slots, of which pods hold %d, %d and %d"
                        .formatted(gpu, card.memoryMiB(), card.cores(), card.slots(), sum[0], sum[1], sum[2]));
            }
            if (sum[3] > 0 && sum[4] > 1) {
                throw new AssertionError("a whole-card pod is not alone on " + gpu);
            }
        });
        checkQuotas();
    }

    /** The last grant of more of a resource must fit beside what the other pods of the namespace hold of it. */
    private void checkQuotas() {
        Map<String, List<Pod>> byNamespace =
                holding().stream().collect(Collectors.groupingBy(pod -> pod.id.namespace()));
        byNamespace.forEach((namespace, holders) -> what().forEach(what -> holders.stream()
                .flatMap(pod -> Stream.ofNullable(
                        quotaGrants.getOrDefault(pod.id.uid(), Map.of()).get(what)))
                .max(Comparator.naturalOrder())
                .map(grantedQuotas::get)
                .filter(quota -> exceeds(namespace, what, quota))
                .ifPresent(quota -> {
                    throw new AssertionError("pods of %s hold %s, and the last grant of %s was within %s"
                            .formatted(namespace, held(namespace), what, quota.hard()));
                })));
    }

    private void checkAgreement(Replica replica) {
        LedgerInvariants.recount(replica.ledger);
        assertThat(replica.ledger.quotas())
                .extracting(QuotaUsage::quota)
                .containsExactlyInAnyOrderElementsOf(quotas.values());
        replica.ledger
                .quotas()
                .forEach(usage -> assertThat(usage.used())
                        .as("%s of %s", usage.quota().namespace(), replica.name)
                        .isEqualTo(held(usage.quota().namespace())));

        assertThat(LedgerInvariants.unconfirmed(replica.ledger))
                .as(replica.name)
                .isEmpty();
        Map<String, long[]> sums = sums(false);
        LedgerInvariants.taken(replica.ledger).forEach((gpu, taken) -> {
            long[] sum = sums.getOrDefault(gpu, new long[6]);
            assertThat(taken).as(replica.name).isEqualTo(new GpuAmount(sum[0], (int) sum[1], (int) sum[2], sum[3] > 0));
        });
    }

    /** Per GPU: memory, cores, slots, whole cards, pods and the last grant. */
    private Map<String, long[]> sums(boolean withGhosts) {
        var sums = new HashMap<String, long[]>();
        pods.values().stream().filter(Pod::holds).forEach(pod -> add(sums, pod));
        if (withGhosts) {
            ghosts.values().forEach(ghost -> add(sums, ghost.pod));
        }
        return sums;
    }

    private void add(Map<String, long[]> sums, Pod pod) {
        Map<String, Integer> last = grants.getOrDefault(pod.id.uid(), Map.of());
        pod.bound().perGpu().forEach((gpu, amount) -> {
            long[] sum = sums.computeIfAbsent(gpu, any -> new long[6]);
            sum[0] += amount.memoryMiB();
            sum[1] += amount.cores();
            sum[2] += amount.slots();
            sum[3] += amount.exclusive() ? 1 : 0;
            sum[4]++;
            sum[5] = Math.max(sum[5], Objects.requireNonNull(last.get(gpu)));
        });
    }

    private <T> List<T> pick(Collection<T> from) {
        return from.stream()
                .skip(from.isEmpty() ? 0 : random.nextInt(from.size()))
                .limit(1)
                .toList();
    }

    /** One of the two scheduler replicas and its API client. */
    private final class Replica implements Cluster {
        private final String name;
        private final LedgerEvents events = new LedgerEvents();
        private final Ledger ledger = new Ledger(now::get, events);
        private final NodeScoring scoring = new NodeScoring(ledger, new Fragmentation());
        private final PendingPods pending = new PendingPods(now::get);
        private final WriteReconciler reconciler = new WriteReconciler(ledger, this);
        private final Binder binder = new Binder(ledger, this, pending, reconciler, now::get);
        private final Resizer resizer = new Resizer(ledger, this, reconciler);
        private final Runnable auditor = RecoveryAccess.audit(ledger, events, this);
        /** The events that its watch has not delivered yet, in order. */
        private final Deque<Event> untold = new ArrayDeque<>();
        /** The last version of each pod that its watch delivered. */
        private final Map<String, Pod> known = new LinkedHashMap<>();

        private final Map<String, Quota> knownQuotas = new HashMap<>();

        private Cluster.LeaderStatus leaderStatus = new Cluster.LeaderStatus.NotLeading("started");

        Replica(String name) {
            this.name = name;
            nodes.forEach(ledger::putNode);
            learnQuotas();
            loseWatch();
        }

        boolean holds(Pod pod) {
            return ledger.view(pod.node).stream()
                    .flatMap(view -> view.holdings().stream())
                    .anyMatch(holding -> holding.pod().equals(pod.id)
                            && holding.state() == Holding.State.HELD
                            && holding.shares().equals(pod.shares));
        }

        void learnQuotas() {
            knownQuotas.values().stream()
                    .filter(known -> !quotas.containsKey(known.namespace()))
                    .forEach(gone -> ledger.removeQuota(gone.namespace(), gone.name()));
            quotas.values().forEach(ledger::putQuota);
            knownQuotas.clear();
            knownQuotas.putAll(quotas);
        }

        // Its watch, wired like in ClusterConfiguration.

        void deliver() {
            Event event = untold.poll();
            if (event != null) {
                deliver(event);
                if (random.nextInt(3) == 0) {
                    deliver(event);
                }
            }
        }

        private void deliver(Event event) {
            Pod pod = event.pod;
            String uid = pod.id.uid();
            if (event.deleted) {
                known.remove(uid);
                if (!pod.ended && !pod.node.isEmpty()) {
                    ledger.observeBound(pod.bound());
                }
                gone(uid, pod.ended);
            } else {
                known.put(uid, pod);
                if (pod.ended) {
                    gone(uid, true);
                } else if (pod.node.isEmpty()) {
                    ledger.observeUnbound(uid, pod.version);
                } else {
                    pending.forget(uid);
                    ledger.observeBound(pod.bound());
                }
            }
        }

        private void gone(String uid, boolean ended) {
            pending.forget(uid);
            if (ended) {
                ledger.observeEnded(uid);
            } else {
                ledger.deletedBeforeEnd(uid);
            }
        }

        /** Drops undelivered events and delivers a list of all pods, as after a broken watch. */
        void loseWatch() {
            untold.clear();
            Set<String> before = new LinkedHashSet<>(known.keySet());
            before.removeAll(pods.keySet());
            for (String uid : before) {
                known.remove(uid);
                gone(uid, false);
            }
            for (Pod pod : List.copyOf(pods.values())) {
                deliver(new Event(pod, false));
            }
        }

        /** Waits until the admission policy sees the new Lease: Leadership waits a second for that. */
        void takeOver() {
            var fence = new Fence(name, lease.transitions());
            if (!lease.equals(fence)
                    || !believed.equals(lease)
                    || leaderStatus.equals(new Cluster.LeaderStatus.Leads(fence))) {
                return;
            }
            leaderStatus = new Cluster.LeaderStatus.NotLeading("taking over");
            for (Pod pod : List.copyOf(pods.values())) {
                if (pod.holds()) {
                    ledger.assume(pod.bound());
                }
                meanwhile();
            }
            if (lease.equals(fence)) {
                leaderStatus = new Cluster.LeaderStatus.Leads(fence);
            }
        }

        // Requests of kube-scheduler and users.

        void filter(Pod pod) {
            pending.record(seen(pod), FilterOutcome.FITS, List.of());
            String node = "n" + random.nextInt(nodeCount);
            scoring.observe(pod.id.uid(), pod.ask);
            Placement policy = pod.ask.nodePlacement().orElse(Placement.SPREAD);
            NodeRanking ranking = scoring.forPod(pod.id.uid(), pod.ask, policy);
            if (ledger.overQuota(pod.id, pod.ask).isPresent()) {
                counts.count("over quota");
            } else if (ranking.feasibility(node) instanceof Feasibility.Fits) {
                assertThat(ranking.score(node)).isFinite();
                ledger.reserve(pod.id, node, pod.ask);
            }
        }

        /** The possibly stale version that kube-scheduler sees. */
        private UnboundPod seen(Pod pod) {
            return new UnboundPod(pod.id, Math.max(0, pod.version - random.nextInt(2)), PreemptionRank.LOWEST, pod.ask);
        }

        void bind(Pod pod) {
            rarely(2, () -> pending.record(seen(pod), FilterOutcome.FITS, List.of()));
            String node = ledger.nodeOf(pod.id.uid())
                    .filter(any -> random.nextBoolean())
                    .orElse("n" + random.nextInt(nodeCount));
            counts.count("bind " + binder.bind(pod.id, node).label());
        }

        void resize(Pod pod) {
            ContainerShare share = pod.shares.get(random.nextInt(pod.shares.size()));
            var change = new ContainerShareChange(
                    share.container(),
                    random.nextInt(3) == 0 ? null : Integer.valueOf(1 + random.nextInt(2 * MEMORY)),
                    random.nextInt(3) == 0 ? null : Integer.valueOf(random.nextInt(101)),
                    null);
            try {
                Resizer.Result result = resizer.resize(pod.id, List.of(change), OptionalLong.empty());
                if (result instanceof Resizer.Result.Refused(String why) && why.startsWith("namespace ")) {
                    counts.count("resize over quota");
                }
                counts.count("resize " + result.getClass().getSimpleName());
            } catch (FormatException e) {
                counts.count("resize of a whole card");
            }
        }

        void audit() {
            if (leaderStatus instanceof Cluster.LeaderStatus.Leads) {
                counts.count("audit");
            }
            auditor.run();
        }

        void evictFor(Pod pod) {
            String node = "n" + random.nextInt(nodeCount);
            List<Pod> victims = new ArrayList<>();
            holding().stream()
                    .filter(victim -> victim.node.equals(node) && random.nextBoolean())
                    .forEach(victims::add);
            Set<String> uids = new LinkedHashSet<>();
            victims.forEach(victim -> uids.add(victim.id.uid()));
            if (ledger.feasibilityWithout(node, pod.id.uid(), pod.ask, uids) instanceof Feasibility.Fits
                    && ledger.reserveFor(pod.id, node, pod.ask, uids)) {
                counts.count("room kept");
                if (leaderStatus instanceof Cluster.LeaderStatus.Leads) {
                    victims.forEach(victim -> change(victim.leaving()));
                }
            }
            rarely(4, () -> ledger.releaseReservation(pod.id.uid()));
        }

        // The API server as the replica sees it.

        @Override
        public Cluster.LeaderStatus leadership() {
            return leaderStatus;
        }

        @Override
        public OptionalLong version(PodId id) {
            Pod pod = known.get(id.uid());
            return pod == null || !pod.node.isEmpty() ? OptionalLong.empty() : OptionalLong.of(pod.version);
        }

        @Override
        public WriteOutcome bind(PodId pod, long version, String node, Map<String, String> annotations) {
            return write(pod, version, node, annotations);
        }

        @Override
        public WriteOutcome resize(PodId pod, long version, Map<String, String> annotations) {
            return write(pod, version, "", annotations);
        }

        @Override
        public WriteOutcome annotate(String node, long version, Map<String, Optional<String>> annotations) {
            return new WriteOutcome.Done();
        }

        private WriteOutcome write(PodId pod, long version, String node, Map<String, String> annotations) {
            // It was restarted while it waited for an answer: a killed process sends nothing, and hears of no change.
            if (!replicas.contains(this)) {
                counts.count("killed in a request");
                return new WriteOutcome.Unknown("killed");
            }
            Request request = request(this, pod, version, node, annotations);
            meanwhile();
            WriteOutcome outcome = new WriteOutcome.Unknown("no answer");
            switch (calm ? 9 : random.nextInt(10)) {
                case 0 -> counts.count("request lost");
                case 1, 2 -> inFlight.add(request);
                case 3 -> {
                    if (FaultModel.this.apply(request) instanceof WriteOutcome.Done) {
                        counts.count("answer lost");
                    }
                }
                case 4 -> outcome = new WriteOutcome.Unheard("too busy");
                default -> outcome = FaultModel.this.apply(request);
            }
            meanwhile();
            return outcome;
        }

        @Override
        public PodState bumpVersion(PodId pod, long version) {
            WriteOutcome outcome = write(pod, version, "", Map.of(Annotations.BUMPED_VERSION, Long.toString(version)));
            return outcome instanceof WriteOutcome.Refused || outcome instanceof WriteOutcome.Unheard
                    ? new PodState.Unreadable("no")
                    : read(pod);
        }

        @Override
        public PodState read(PodId id) {
            meanwhile();
            if (!calm && random.nextInt(5) == 0) {
                return new PodState.Unreadable("no answer");
            }
            Pod pod = pods.get(id.uid());
            PodState state = new PodState.Gone();
            if (pod != null && !pod.ended) {
                state = pod.node.isEmpty()
                        ? new PodState.Unbound(pod.version, pod.ask)
                        : new PodState.Bound(pod.bound());
            }
            meanwhile();
            return state;
        }

        @Override
        public boolean wake(String node) {
            return true;
        }

        @Override
        public void warn(PodId pod, String reason, String what, String message) {}

        /** Nothing in this model evicts. */
        @Override
        public EvictOutcome evict(PodId id, boolean dryRun) {
            throw new AssertionError(id + " is evicted");
        }

        @Override
        public EvictOutcome evict(PodId id, Duration grace) {
            return evict(id, false);
        }

        @Override
        public EvictOutcome end(PodId id, Duration grace) {
            return evict(id, false);
        }

        @Override
        public void note(PodId pod, String reason, String message) {}

        @Override
        public void warn(NodeId node, String reason, String message) {}

        @Override
        public void warnOnce(NodeId node, String reason, String occasion, String message) {}

        @Override
        public void note(NodeId node, String reason, String message) {}
    }
}
