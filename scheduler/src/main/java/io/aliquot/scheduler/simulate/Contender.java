package io.aliquot.scheduler.simulate;

import io.aliquot.scheduler.placement.Demand;
import java.util.List;
import java.util.Locale;

/** A policy that takes part, by the name that users write. */
enum Contender {
    /** Any node, any GPU. */
    RANDOM,
    /** The fullest. */
    BEST_FIT,
    /** Fragmentation Gradient Descent. */
    FGD,
    /** The scheduler's own. */
    FRAGMENTATION;

    /**
     * A policy for one replay.
     *
     * @param workload that pods are drawn from, for policies that know it beforehand
     */
    Policy<?> policy(List<Demand> workload) {
        return switch (this) {
            case RANDOM -> new AnyFit();
            case BEST_FIT -> new BestFit();
            case FGD -> new Fgd(TypicalPods.of(workload));
            case FRAGMENTATION -> new LeastWaste();
        };
    }

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT).replace("_", "-");
    }
}
