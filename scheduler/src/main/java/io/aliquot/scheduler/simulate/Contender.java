package io.aliquot.scheduler.simulate;

import io.aliquot.api.Placement;
import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.scoring.ScoringPolicy;
import io.aliquot.scheduler.scoring.fragmentation.Fragmentation;
import java.util.List;
import java.util.Locale;

/** A policy that takes part, by the name that users write. */
enum Contender {
    /** Any node, any GPU. */
    RANDOM,
    /** The node with the least CPU and GPU left. */
    BEST_FIT,
    /** The scheduler's own. */
    BINPACK,
    /** The scheduler's own. */
    SPREAD,
    /** Fragmentation Gradient Descent. */
    FGD,
    /** The scheduler's own. */
    FRAGMENTATION;

    /** What the scheduler is told to place by. */
    Placement placement() {
        return switch (this) {
            case RANDOM, BINPACK -> Placement.BINPACK;
            case SPREAD -> Placement.SPREAD;
            case BEST_FIT, FGD, FRAGMENTATION -> Placement.FRAGMENTATION;
        };
    }

    /**
     * Who judges places for {@link Placement#FRAGMENTATION} in one replay.
     *
     * @param workload that pods are drawn from, for judges that know it beforehand
     */
    ScoringPolicy<?> judge(List<DemandVector> workload) {
        return switch (this) {
            case BEST_FIT -> new BestFit();
            case FGD -> new Fgd(TypicalPods.of(workload));
            case RANDOM, BINPACK, SPREAD, FRAGMENTATION -> new Fragmentation();
        };
    }

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT).replace("_", "-");
    }
}
