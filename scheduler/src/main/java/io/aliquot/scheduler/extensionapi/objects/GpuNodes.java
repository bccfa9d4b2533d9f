package io.aliquot.scheduler.extensionapi.objects;

import io.aliquot.api.nodes.GpuHealth.Unhealthy;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.NodeId;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.Metadata;
import io.aliquot.scheduler.extensionapi.machinery.WatchCache;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.Amounts;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.Condition;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.Gpu;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuNode;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuNodeStatus;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuStatus;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.Reservation;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.ReservedAmount;
import io.aliquot.scheduler.ledger.Holding.State;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.metrics.ShareSizes;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuCapacity;
import io.aliquot.scheduler.placement.GpuInfo;
import java.time.Duration;
import java.time.Instant;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.stereotype.Component;

/*
 * What the ledger says of a node changes with every pod, so the objects are made on demand: refresh() compares each
 * node's revision in the ledger with the one of its objects. Nothing runs while no one asks, and kube-scheduler's
 * requests pay one addition. An event of a watch shows the newest version that this process had seen when it noticed the
 * change. The ledger knows a pod a moment before that version is reported, so the change may be of a later one.
 */
/**
 * The objects of nodes and their GPUs, made from the ledger and the nodes' metadata. A GPU belongs to the first node that
 * lists it, until that node no longer does. Thread-safe.
 */
@Component
public final class GpuNodes {
    /** Requests that follow each other faster get the same objects, so that many watchers cost what one costs. */
    private static final long SHORTEST_MILLIS = 200;

    private static final Logger LOG = LoggerFactory.getLogger(GpuNodes.class);

    /** Of an object without GPUs, and of each GPU. */
    private static final int BYTES = 500;

    private static final Duration SIZES_TIME = Duration.ofSeconds(15);

    /**
     * What a Node object says.
     *
     * @param version its resourceVersion
     * @param conditions what the scheduler concludes from it
     */
    public record NodeMetadata(
            String name,
            String uid,
            long version,
            Instant created,
            Map<String, String> labels,
            List<Condition> conditions) {
        public NodeMetadata {
            labels = Map.copyOf(labels);
            conditions = List.copyOf(conditions);
        }
    }

    /** An object, the node that it belongs to, and its GPUs. */
    public record Stored<T>(NodeMetadata node, T object, List<GpuInfo> gpus) {
        public Stored {
            gpus = List.copyOf(gpus);
        }

        /** What it takes, about. */
        long bytes() {
            return (long) BYTES * (2 + gpus.size()) + GpuPod.bytes(node.labels());
        }
    }

    /**
     * What the objects of a node were made from.
     *
     * @param gpus the names of its GPU objects
     * @param ofOthers GPUs that its inventory lists although they are another node's
     */
    private record Made(NodeMetadata node, long revision, Set<String> gpus, Set<String> ofOthers) {
        /** Whether the objects are those of this revision; never while the node may get a GPU of another node. */
        boolean isOf(NodeMetadata node, long revision) {
            return this.revision == revision && this.node.equals(node) && ofOthers.isEmpty();
        }
    }

    /**
     * When changes were noticed.
     *
     * @param reached every change up to this version had been reported
     * @param first whether these are the first objects: each list is younger
     */
    private record Noticed(long reached, boolean first) {
        /** Watches from earlier versions get the event. The change may be of a version after {@code reached}. */
        long watched() {
            return first ? reached : reached + 1;
        }
    }

    private final Ledger ledger;
    private final PendingPods pending;
    private final Cluster cluster;
    private final LongSupplier nanoTime;
    private final Map<String, NodeMetadata> nodes = new ConcurrentHashMap<>();
    private final Map<String, Made> made = new HashMap<>();
    private final WatchCache<Stored<GpuNode>> nodeStore = new WatchCache<>(Stored::bytes);
    private final WatchCache<Stored<Gpu>> gpuStore = new WatchCache<>(Stored::bytes);
    private volatile long newest;
    private @Nullable ShareSizes sizes;
    private long sizesAt;
    private long refreshedAt;

    GpuNodes(Ledger ledger, PendingPods pending, Cluster cluster, LongSupplier nanoTime) {
        this.ledger = ledger;
        this.pending = pending;
        this.cluster = cluster;
        this.nanoTime = nanoTime;
    }

    // Reports of the watches on nodes and pods.

    /** Adds or updates a node. */
    public void put(NodeMetadata node) {
        nodes.put(node.name(), node);
        reached(node.version());
    }

    public void remove(String node) {
        nodes.remove(node);
    }

    /** All nodes, or all pods, have been listed, as of this version. */
    public synchronized void listed(long version) {
        reached(version);
        nodeStore.listed(version);
        gpuStore.listed(version);
    }

    /** Every change of a node, or of a pod, up to this version was reported. */
    public void reached(long version) {
        if (version > newest) { // two threads report; the loser's version comes again within a minute
            newest = version;
        }
    }

    WatchCache<Stored<GpuNode>> nodeStore() {
        return nodeStore;
    }

    WatchCache<Stored<Gpu>> gpuStore() {
        return gpuStore;
    }

    /** Brings the objects up to date if they are older than the shortest time between two updates. */
    synchronized void refreshIfOld() {
        if (nanoTime.getAsLong() - refreshedAt
                > Duration.ofMillis(SHORTEST_MILLIS).toNanos()) {
            refresh();
        }
    }

    synchronized void refresh() {
        var version = new Noticed(newest, made.isEmpty());
        List<String> gone =
                made.keySet().stream().filter(node -> !nodes.containsKey(node)).toList();
        gone.forEach(node -> remove(node, version));
        // The oldest node first: in a process that has just started, it owns a GPU that two nodes list.
        List<NodeMetadata> changed = nodes.values().stream()
                .filter(node -> {
                    Made before = made.get(node.name());
                    return before == null || !before.isOf(node, ledger.revision(node.name()));
                })
                .sorted(Comparator.comparing(NodeMetadata::created).thenComparing(NodeMetadata::name))
                .toList();
        changed.forEach(node -> update(node, ledger.revision(node.name()), made.get(node.name()), version));
        nodeStore.reached(version.reached());
        gpuStore.reached(version.reached());
        refreshedAt = nanoTime.getAsLong();
    }

    private void update(NodeMetadata node, long revision, @Nullable Made before, Noticed version) {
        Optional<NodeView> view = ledger.view(node.name()).filter(GpuNodes::isOurs);
        if (view.isEmpty()) {
            if (before != null) {
                remove(node.name(), version);
            }
            return;
        }
        Map<String, Stored<Gpu>> gpus = new TreeMap<>();
        Set<String> ofOthers = new TreeSet<>();
        view.get().gpus().forEach(free -> {
            String name = name(free.gpu().uuid());
            Optional<String> owner = gpuStore.find(name).map(gpu -> gpu.node().name());
            if (owner.filter(other -> !other.equals(node.name())).isPresent()) {
                ofOthers.add(free.gpu().uuid() + ", which is node " + owner.get() + "'s");
            } else {
                gpus.put(name, new Stored<>(node, gpu(node, view.get(), free), List.of(free)));
            }
        });
        if (!ofOthers.isEmpty() && (before == null || !before.ofOthers().equals(ofOthers))) {
            report(node, ofOthers);
        }
        gpus.forEach((name, gpu) -> put(gpuStore, name, gpu, version));
        if (before != null) {
            before.gpus().stream()
                    .filter(name -> !gpus.containsKey(name))
                    .forEach(name -> gpuStore.remove(name, version.reached(), version.watched()));
        }
        put(
                nodeStore,
                node.name(),
                new Stored<>(
                        node,
                        node(
                                node,
                                view.get(),
                                gpus.values().stream().map(Stored::object).toList()),
                        gpus.values().stream()
                                .flatMap(gpu -> gpu.gpus().stream())
                                .toList()),
                version);
        made.put(node.name(), new Made(node, revision, gpus.keySet(), ofOthers));
    }

    private void report(NodeMetadata node, Set<String> ofOthers) {
        String message = "its inventory lists " + ofOthers.size() + " GPUs of other nodes, such as GPU "
                + ofOthers.iterator().next() + "; the aggregated API shows them for these";
        LOG.warn("node={} {}", node.name(), message);
        cluster.warn(new NodeId(node.name(), node.uid()), "GpuOfAnotherNode", message);
    }

    /** A change that no field shows, such as a renewed heartbeat of the Node, is no event. */
    private static <T extends MetaTypes.ApiObject> void put(
            WatchCache<Stored<T>> store, String name, Stored<T> object, Noticed version) {
        Optional<Stored<T>> before = store.find(name);
        if (before.filter(known -> sameContent(known.object(), object.object())).isEmpty()) {
            store.put(name, object, version.reached(), version.watched());
        }
    }

    private static boolean sameContent(MetaTypes.ApiObject one, MetaTypes.ApiObject other) {
        return one.withVersion("").equals(other.withVersion(""));
    }

    private void remove(String node, Noticed version) {
        Made before = made.remove(node);
        if (before != null) {
            before.gpus().forEach(gpu -> gpuStore.remove(gpu, version.reached(), version.watched()));
            nodeStore.remove(node, version.reached(), version.watched());
        }
    }

    private static boolean isOurs(NodeView view) {
        return !(view.facts() instanceof NodeFacts.Unavailable node && !node.labeled())
                || !view.holdings().stream()
                        .allMatch(holding -> holding.perGpu().isEmpty());
    }

    /** Free memory of the object's GPUs, in MiB, that no vGPU fits into. It also depends on pods of other nodes. */
    long strandedMiB(Stored<?> stored) {
        ShareSizes current = sizes();
        return stored.gpus().stream().mapToLong(current::stranded).sum();
    }

    /** The sizes of all shares, some seconds old: they change slowly, and to read them takes all nodes. */
    private synchronized ShareSizes sizes() {
        ShareSizes known = sizes;
        if (known == null || nanoTime.getAsLong() - sizesAt > SIZES_TIME.toNanos()) {
            known = ShareSizes.of(
                    ledger.nodeNames().stream()
                            .flatMap(name -> ledger.view(name).stream())
                            .toList(),
                    pending);
            sizes = known;
            sizesAt = nanoTime.getAsLong();
        }
        return known;
    }

    private static Metadata metadata(NodeMetadata node, String name, String uid) {
        return new Metadata(
                name,
                null,
                uid,
                Long.toString(node.version()),
                node.created().equals(Instant.EPOCH) ? null : node.created().toString(),
                node.labels().isEmpty() ? null : node.labels());
    }

    private static GpuNode node(NodeMetadata node, NodeView view, List<Gpu> gpus) {
        String reason = view.unavailableReason();
        Optional<Sharing> sharing = view.facts() instanceof Sharing one ? Optional.of(one) : Optional.empty();
        return new GpuNode(
                metadata(node, node.name(), node.uid()),
                new GpuNodeStatus(
                        reason.isEmpty(),
                        reason.isEmpty() ? null : reason,
                        sharing.map(one -> one.gpus().sharing().print()).orElse(null),
                        sharing.map(one -> one.gpuPlacement().print()).orElse(null),
                        gpus.stream().map(gpu -> gpu.metadata().name()).toList(),
                        (int) gpus.stream()
                                .filter(gpu -> gpu.status().healthy())
                                .count(),
                        sum(gpus, GpuStatus::memoryMiB),
                        sum(gpus, GpuStatus::cores),
                        sum(gpus, GpuStatus::slots),
                        gpus.stream().mapToInt(gpu -> gpu.status().shares()).sum(),
                        null,
                        node.conditions(),
                        reservations(view)));
    }

    private static Amounts sum(List<Gpu> gpus, java.util.function.Function<GpuStatus, Amounts> amounts) {
        return gpus.stream().map(gpu -> amounts.apply(gpu.status())).reduce(Amounts.of(0, 0), Amounts::plus);
    }

    private static List<Reservation> reservations(NodeView view) {
        return view.holdings().stream()
                .filter(holding ->
                        holding.state() != State.HELD && !holding.perGpu().isEmpty())
                .map(holding -> new Reservation(
                        holding.pod().namespace(),
                        holding.pod().name(),
                        holding.pod().uid(),
                        state(holding.state()),
                        amounts(holding.perGpu())))
                .sorted(Comparator.comparing(Reservation::namespace)
                        .thenComparing(Reservation::pod)
                        .thenComparing(Reservation::uid))
                .toList();
    }

    /** Amounts by UUID, in the order of these. */
    static List<ReservedAmount> amounts(Map<String, GpuAmount> perGpu) {
        return new TreeMap<>(perGpu)
                .entrySet().stream()
                        .map(entry -> reserved(entry.getKey(), entry.getValue()))
                        .toList();
    }

    private static ReservedAmount reserved(String gpu, GpuAmount amount) {
        return new ReservedAmount(gpu, amount.memoryMiB(), amount.cores(), amount.slots(), amount.exclusive());
    }

    private static String state(State state) {
        return switch (state) {
            case RESERVED -> "expected";
            case RESERVED_FOR_PREEMPTOR -> "kept";
            case ASSUMED -> "binding";
            case HELD, LINGERING -> state.name().toLowerCase(Locale.ROOT);
        };
    }

    public static String name(String uuid) {
        return uuid.toLowerCase(Locale.ROOT);
    }

    private static Gpu gpu(NodeMetadata node, NodeView view, GpuInfo free) {
        GpuCapacity card = free.capacity();
        GpuAmount allocated = free.allocated();
        Optional<Unhealthy> unhealthy = card.gpu().health().unhealthy();
        String uuid = card.gpu().uuid();
        String name = name(uuid);
        return new Gpu(
                metadata(node, name, name.replaceFirst("^(gpu|mig)-", "")),
                new GpuStatus(
                        uuid,
                        view.name(),
                        card.gpu().index(),
                        card.gpu().model(),
                        card.gpu().numa() < 0 ? null : card.gpu().numa(),
                        card.gpu().healthy(),
                        unhealthy.map(Unhealthy::reason).orElse(null),
                        unhealthy
                                .filter(Unhealthy::isSinceKnown)
                                .map(one -> one.since().toString())
                                .orElse(null),
                        card.cordoned(),
                        allocated.exclusive(),
                        Amounts.of(card.memoryMiB(), allocated.memoryMiB()),
                        Amounts.of(card.cores(), allocated.cores()),
                        Amounts.of(card.slots(), allocated.slots()),
                        (int) view.holdings().stream()
                                .filter(holding -> holding.isShareOf(uuid))
                                .count(),
                        null,
                        null));
    }
}
