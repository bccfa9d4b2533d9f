package io.aliquot.scheduler.simulate;

/*
 * The policy of the paper named in TypicalPods, as its simulator has it: the score is a whole number from 0 to 100, and
 * of equal ones the fullest node wins. Both matter: unrounded, and with ties drawn, it allocates 6 points less.
 */
/** Fragmentation Gradient Descent: the place where fragmentation grows least. */
final class Fgd implements Policy {
    private final TypicalPods typical;

    Fgd(TypicalPods typical) {
        this.typical = typical;
    }

    @Override
    public double score(Demand demand, NodeState before, NodeState after) {
        double less = (typical.fragmentation(before) - typical.fragmentation(after)) / Demand.WHOLE;
        return Math.floor(100 / (1 + Math.exp(-less)));
    }

    @Override
    public double tie(NodeState before) {
        return before.free;
    }
}
