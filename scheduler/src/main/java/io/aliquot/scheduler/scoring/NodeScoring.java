package io.aliquot.scheduler.scoring;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.placement.CandidatePlacements;
import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.PlacementPolicy;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.List;
import java.util.stream.Stream;

/** Which nodes of a ledger a pod fits on, and which the placement policy prefers. Thread-safe. */
public final class NodeScoring {
    /** The most pods of which is known that they were observed; a pod that is retried counts once. */
    private static final int MOST_PODS = 20_000;

    /** A model of the scoring policy; {@code version} differs from all others'. */
    record VersionedModel(ScoringPolicy.Model model, int version) {
        /** The candidate with the highest score; of equal ones the first. */
        Best best(CandidatePlacements candidates) {
            int best = 0;
            double highest = Double.NEGATIVE_INFINITY;
            for (int i = 0; i < candidates.count(); i++) {
                double score = model.score(candidates.demand(), candidates.before(), candidates.after(i));
                if (score > highest) {
                    best = i;
                    highest = score;
                }
            }
            return new Best(best, highest);
        }

        /** The terms of a candidate's score. */
        List<ScoreTerm> terms(CandidatePlacements candidates, int candidate) {
            return model.terms(candidates.demand(), candidates.before(), candidates.after(candidate));
        }
    }

    /** A candidate, by its index, and its score. */
    record Best(int candidate, double score) {}

    private final Ledger ledger;
    private final FeasibilityCache cache = new FeasibilityCache();

    private final Cache<String, Boolean> observed =
            Caffeine.newBuilder().maximumSize(MOST_PODS).executor(Runnable::run).build();

    /** No lock of the ledger is held when it is locked. */
    @GuardedBy("itself")
    private final ScoringPolicy policy;
    /** Whether the policy knows the pods that were bound before the first observed one. */
    @GuardedBy("policy")
    private boolean knowsBoundPods;

    private volatile VersionedModel model;

    /**
     * Connects the policy to a ledger that has none yet.
     *
     * @param policy scores the candidates of placement policies that score them
     */
    public NodeScoring(Ledger ledger, ScoringPolicy policy) {
        this.ledger = ledger;
        this.policy = policy;
        this.model = new VersionedModel(policy.learn(List.of(), List::of), 1);
        ledger.connect(candidates -> candidates.gpu(model.best(candidates).candidate()));
    }

    /** Reports a pod that is to be placed, by any policy; the scoring policy learns the workload from all of them. */
    public void observe(String uid, PodGpuRequest request) {
        if (observed.asMap().putIfAbsent(uid, true) != null) {
            return;
        }
        synchronized (policy) {
            Stream<PodGpuRequest> bound = knowsBoundPods ? Stream.of() : ledger.boundRequests().stream();
            knowsBoundPods = true;
            List<DemandVector> pods = Stream.concat(bound, Stream.of(request))
                    .map(ledger.models()::demand)
                    .toList();
            ScoringPolicy.Model now = policy.learn(pods, ledger::freeCapacities);
            if (now != model.model()) {
                model = new VersionedModel(now, model.version() + 1);
            }
        }
    }

    /**
     * The nodes that fit this pod, and which of them is best, for one request.
     *
     * @param placement the name of the policy by which the pod's node is chosen
     */
    public NodeRanking forPod(String uid, PodGpuRequest request, Placement placement) {
        return new NodeRanking(
                ledger,
                model,
                cache,
                uid,
                request,
                PlacementPolicy.of(placement),
                ledger.nodeOf(uid).orElse(""));
    }
}
