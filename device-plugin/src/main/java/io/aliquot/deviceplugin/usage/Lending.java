package io.aliquot.deviceplugin.usage;

import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.usage.NodeAllocation.Limit;
import java.util.Optional;

/**
 * What the containers on one GPU lend and borrow at a time, as parts of the GPU. An elastic container borrows what it uses
 * beyond its cores. Nothing tells whose time that is, so it counts in proportion to what each container leaves unused of its
 * cores, and to the time that no container holds. What is lent is therefore at most what is borrowed.
 *
 * <p>First each container is added, then the results are read.
 */
final class Lending {
    private static final double PERCENT = 100;

    private double free = 1;
    private double unused;
    private double borrowed;

    /**
     * Adds a container.
     *
     * @param limit empty if it is not known
     * @param used part of the GPU's time
     */
    void add(Optional<Limit> limit, double used) {
        free -= cores(limit, used);
        unused += unused(limit, used);
        borrowed += borrowed(limit, used);
    }

    /** What a container that was added borrows; 0 unless it is elastic. */
    double borrowed(Optional<Limit> limit, double used) {
        boolean elastic = limit.filter(of -> of.policy() == CorePolicy.ELASTIC).isPresent();
        return elastic ? Math.max(0, used - cores(limit, used)) : 0;
    }

    /** What a container that was added lends. */
    double lent(Optional<Limit> limit, double used) {
        double offered = unused + Math.max(0, free);
        return offered <= 0 ? 0 : unused(limit, used) * Math.min(1, borrowed / offered);
    }

    private static double unused(Optional<Limit> limit, double used) {
        return Math.max(0, cores(limit, used) - used);
    }

    /** A container without a limit has no time of its own: it holds what it uses. */
    private static double cores(Optional<Limit> limit, double used) {
        return limit.map(Limit::ownCores)
                .filter(cores -> cores.isPresent())
                .map(cores -> cores.getAsInt() / PERCENT)
                .orElse(used);
    }
}
