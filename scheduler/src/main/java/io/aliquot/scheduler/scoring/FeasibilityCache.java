package io.aliquot.scheduler.scoring;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import io.aliquot.scheduler.ledger.NodeAccountView;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.HashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/*
 * Pods of one template are of one kind: a node answers all of them alike until something changes there. Between one pod
 * and the next few nodes change, however many nodes and running pods there are. Therefore each account counts its changes,
 * and the cache keeps the node's last answer to each kind together with that count. A node that has not changed costs a
 * look-up; a node that has changed costs its lock and one run of the GPU selector.
 *
 * A cached answer is valid at the instant at which the count is read: a node counts a change before it releases its lock,
 * and an answer and its count are read under that lock. An answer of a closed account is never valid again, even if it was
 * read after the account was closed: another account may be opened for the node. A score is valid as long as its answer
 * and the model that computed it.
 */
/** What the nodes answered to each kind of pod, and their scores. Thread-safe. */
final class FeasibilityCache {
    /** The most cached answers, about 150 bytes each: with more nodes, fewer kinds are cached. */
    private static final int ANSWERS = CacheSizes.limit(1 << 19, 150);

    private record Key(PodGpuRequest request, boolean scored) {}

    /** The answers to one kind of pod. Callers synchronize on it. */
    static final class Kind {
        @GuardedBy("this")
        private final Map<String, NodeAnswer> answers = new HashMap<>();

        /** The node's answer if the node has not changed since. */
        @GuardedBy("this")
        @Nullable
        NodeAnswer findCurrent(String node) {
            NodeAnswer known = answers.get(node);
            return known != null && known.isCurrent() ? known : null;
        }

        /**
         * The node's last answer, current or not, or a new one to be set.
         *
         * @param nodes how many nodes the ledger knows; answers of about as many others are kept
         */
        @GuardedBy("this")
        NodeAnswer open(String node, NodeAccountView account, int nodes) {
            NodeAnswer known = answers.get(node);
            if (known == null || known.account != account) {
                if (answers.size() > 2 * nodes) {
                    answers.values().removeIf(answer -> !answer.isCurrent());
                }
                known = new NodeAnswer(node, account);
                answers.put(node, known);
            }
            return known;
        }
    }

    /** The number of nodes that the size of the cache is computed for. */
    private volatile int sizedFor = -1;

    private final Cache<Key, Kind> kinds =
            Caffeine.newBuilder().maximumSize(1).executor(Runnable::run).build();

    /**
     * The answers to a kind of pod.
     *
     * @param scored whether a scoring policy scores the nodes; only then CPU and memory make a difference
     * @param nodes how many nodes the ledger knows
     */
    Kind kind(PodGpuRequest request, boolean scored, int nodes) {
        if (sizedFor != nodes) {
            sizedFor = nodes;
            kinds.policy().eviction().orElseThrow().setMaximum(1 + ANSWERS / Math.max(1, nodes));
        }
        return kinds.get(new Key(scored ? request : request.withoutHostRequests(), scored), any -> new Kind());
    }
}
