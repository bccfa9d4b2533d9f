package io.aliquot.scheduler.nodeagent;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.CertificateDigest;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.cluster.Cluster.WriteOutcome;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.util.Collection;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Tells node agents, by the annotation {@value Annotations#AGENT_CLIENTS} of each node with an inventory, which certificates
 * of clients to accept; leader only. The agent watches its Node, so it learns of them within a second. Thread-safe.
 */
public final class AcceptedClients {
    /** Every write is an event of all watches on nodes: 5,000 nodes take 50 s. */
    static final int MAX_WRITES_PER_RUN = 50;

    /** After a write that had no visible effect. */
    private static final Duration RETRY = Duration.ofSeconds(10);

    private static final Logger LOG = LoggerFactory.getLogger(AcceptedClients.class);

    private final Cluster cluster;
    private final Consumer<String> onTold;
    private final LongSupplier nanoTime;
    private final Map<String, Known> nodes = new ConcurrentHashMap<>();
    private volatile @Nullable String clients;

    /**
     * A node as the watch shows it.
     *
     * @param told the value of the annotation; empty if there is none
     * @param writtenAt when this version was written to; null if it was not
     */
    private record Known(
            long version,
            boolean hasAgent,
            Optional<String> told,
            @Nullable Long writtenAt) {}

    /**
     * Knows no certificates at first, and then writes nothing.
     *
     * @param onTold receives the name of a node whose agent has just been told others than before
     */
    public AcceptedClients(Cluster cluster, Consumer<String> onTold, LongSupplier nanoTime) {
        this.cluster = cluster;
        this.onTold = onTold;
        this.nanoTime = nanoTime;
    }

    /** Agents are to accept these and no others. */
    public void accept(Collection<X509Certificate> certificates) {
        clients = certificates.stream().map(CertificateDigest::of).sorted().collect(Collectors.joining(","));
    }

    /** Adds or updates a node. */
    public void put(String node, long version, Map<String, String> annotations) {
        Optional<String> told = Optional.ofNullable(annotations.get(Annotations.AGENT_CLIENTS));
        Known before = nodes.get(node);
        if (before == null || before.version != version) {
            nodes.put(node, new Known(version, annotations.containsKey(Annotations.GPUS), told, null));
        }
        if (before != null && told.isPresent() && !told.equals(before.told)) {
            onTold.accept(node);
        }
    }

    public void remove(String node) {
        nodes.remove(node);
    }

    /** One run, several times a second. */
    public synchronized void update() {
        String accepted = clients;
        if (accepted == null || !(cluster.leadership() instanceof Leads)) {
            return;
        }
        long now = nanoTime.getAsLong();
        nodes.entrySet().stream()
                .filter(node -> isDue(node.getValue(), accepted, now))
                .limit(MAX_WRITES_PER_RUN)
                .forEach(node -> write(node.getKey(), node.getValue(), accepted, now));
    }

    private static boolean isDue(Known node, String accepted, long now) {
        Optional<String> wanted = Optional.of(accepted).filter(any -> node.hasAgent);
        return !node.told.equals(wanted) && (node.writtenAt == null || now - node.writtenAt >= RETRY.toNanos());
    }

    private void write(String name, Known node, String accepted, long now) {
        nodes.replace(name, node, new Known(node.version, node.hasAgent, node.told, now));
        Optional<String> wanted = Optional.of(accepted).filter(any -> node.hasAgent);
        WriteOutcome outcome = cluster.annotate(name, node.version, Map.of(Annotations.AGENT_CLIENTS, wanted));
        if (!(outcome instanceof WriteOutcome.Done || outcome instanceof WriteOutcome.Conflicts)) {
            LOG.warn("cannot tell the agent of node {} its clients, trying again: {}", name, outcome);
        }
    }
}
