package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.placement.CandidateChooser;
import io.aliquot.scheduler.placement.CandidatePlacements;
import io.aliquot.scheduler.placement.GpuModels;
import io.aliquot.scheduler.placement.PodRuntime;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/*
 * An account is opened by the first change of its node and closed when the node is unknown and has no claims. A thread
 * may have found an account before another one closes it; withAccount() checks closed() under the lock and looks the
 * node up again.
 */
/** The accounts of all nodes, by name. Thread-safe. */
final class NodeAccounts {
    final GpuModels models = new GpuModels();
    final Quotas quotas = new Quotas();

    private final Map<String, NodeAccount> byName = new ConcurrentHashMap<>();
    /** Nodes whose agent is not ready, whether or not the node is known; true if the node has an agent. */
    private final Map<String, Boolean> notReady = new ConcurrentHashMap<>();

    /** The handler of each RuntimeClass, by the name of the RuntimeClass. */
    private final Map<String, String> handlers = new ConcurrentHashMap<>();

    private volatile CandidateChooser chooser = candidates -> candidates.gpu(0);

    void connect(CandidateChooser chooser) {
        this.chooser = chooser;
    }

    @Nullable
    NodeAccount find(String node) {
        return byName.get(node);
    }

    Collection<NodeAccount> all() {
        return byName.values();
    }

    List<String> names() {
        return List.copyOf(byName.keySet());
    }

    /** Sets the handler of a RuntimeClass; returns whether it had another one. */
    boolean putHandler(String runtimeClass, String handler) {
        return !handler.equals(handlers.put(runtimeClass, handler));
    }

    boolean removeHandler(String runtimeClass) {
        return handlers.remove(runtimeClass) != null;
    }

    /** The handler that starts a pod, whose name is empty for the default one; empty if its RuntimeClass is not known. */
    Optional<String> handler(PodRuntime pod) {
        return pod.runtimeClass().isEmpty() ? Optional.of("") : Optional.ofNullable(handlers.get(pod.runtimeClass()));
    }

    void setAgentReady(String node, boolean ready) {
        if (ready) {
            notReady.remove(node);
        } else {
            notReady.put(node, true);
        }
    }

    void setAgentMissing(String node) {
        notReady.put(node, false);
    }

    /** Runs this with the node's account locked; opens the account before and closes it afterwards as needed. */
    <T> T withAccount(String node, Function<NodeAccount, T> work) {
        while (true) {
            NodeAccount account = byName.computeIfAbsent(node, this::open);
            synchronized (account) {
                if (!account.closed()) {
                    T result = work.apply(account);
                    if (account.idle()) {
                        close(node, account);
                    }
                    return result;
                }
            }
        }
    }

    private NodeAccount open(String node) {
        return new NodeAccount(this, !notReady.containsKey(node));
    }

    /** Removes the account from the map before its lock is released, so that a waiting thread finds another one. */
    private void close(String node, NodeAccount account) {
        account.close();
        byName.remove(node);
        notReady.remove(node, false);
    }

    int choose(CandidatePlacements candidates) {
        return chooser.choose(candidates);
    }
}
