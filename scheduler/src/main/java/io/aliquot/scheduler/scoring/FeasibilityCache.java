package io.aliquot.scheduler.scoring;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.scheduler.ledger.NodeAccountView;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/*
 * Pods of one template are of one kind: a node answers all of them alike until something changes there. Between one pod
 * and the next few nodes change, however many nodes and running pods there are. Therefore each account counts its changes,
 * and the cache keeps the node's last answer to each kind together with that count. A node that has not changed costs a
 * comparison; a node that has changed costs its lock and one run of the GPU selector. With the policy binpack a pod costs
 * Filter and Prioritize 31 microseconds on 1,000 nodes (JMH, FilterAndPrioritizeBenchmark.placed); arrays indexed by
 * account in place of objects would save 9 of them, 2 % of a pod's CPU in the extender.
 *
 * A cached answer is valid at the instant at which the count is read: a node counts a change before it releases its lock,
 * and an answer and its count are read under that lock. An answer of a closed account is never valid again, even if it was
 * read after the account was closed: another account may be opened for the node.
 */
/** What the nodes answered to each kind of pod. Thread-safe. */
final class FeasibilityCache {
    /** The most cached answers, with scores about 390 bytes each: with more nodes, fewer kinds are cached. */
    private static final int ANSWERS = CacheSizes.limit(1 << 19, 390);

    private record Key(PodGpuRequest request, boolean scored) {}

    /** The answers to one kind of pod. Callers synchronize on it. */
    static final class Kind {
        /** How many nodes refused the last pod of this kind. */
        int refusals;

        private final Map<String, NodeAnswer> answers = new HashMap<>();
        /** The last list of names and their answers: most requests repeat it, and save the look-ups. */
        private List<String> lastNames = List.of();

        private NodeAnswer[] lastAnswers = {};

        /** The nodes' last answers, current or not, in an array that the caller updates. */
        @SuppressWarnings("ReferenceEquality") // another list object is looked up
        NodeAnswer[] find(List<String> nodes) {
            if (nodes != lastNames) {
                lastNames = List.copyOf(nodes); // an immutable list is its own copy
                lastAnswers = nodes.stream().map(this::find).toArray(NodeAnswer[]::new);
            }
            return lastAnswers;
        }

        /** The node's last answer, current or not. */
        NodeAnswer find(String node) {
            NodeAnswer known = answers.get(node);
            return known == null ? new NodeAnswer(node) : known;
        }

        /**
         * The node's last answer, current or not, or a new one to be set.
         *
         * @param nodes how many nodes the ledger knows; answers of about as many others are kept
         */
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

    /** The model version of the evaluations among the answers. */
    private volatile int modelVersion;
    /** The number of nodes that the size of the cache is computed for. */
    private volatile int sizedFor = -1;

    private final Cache<Key, Kind> kinds =
            Caffeine.newBuilder().maximumSize(1).executor(Runnable::run).build();

    /**
     * The answers to a kind of pod.
     *
     * @param scored whether a scoring policy scores the nodes; only then CPU and memory make a difference
     * @param modelVersion of the scoring policy
     * @param nodes how many nodes the ledger knows
     */
    Kind kind(PodGpuRequest request, boolean scored, int modelVersion, int nodes) {
        if (this.modelVersion != modelVersion) {
            this.modelVersion = modelVersion;
            // Kinds without new pods would keep evaluations of the former model.
            for (Kind kind : kinds.asMap().values()) {
                synchronized (kind) {
                    kind.answers.values().forEach(NodeAnswer::forgetEvaluation);
                }
            }
        }
        if (sizedFor != nodes) {
            sizedFor = nodes;
            kinds.policy().eviction().orElseThrow().setMaximum(1 + ANSWERS / Math.max(1, nodes));
        }
        return kinds.get(new Key(scored ? request : request.withoutHostRequests(), scored), any -> new Kind());
    }
}
