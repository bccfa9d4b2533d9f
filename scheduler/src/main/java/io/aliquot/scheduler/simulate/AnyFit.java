package io.aliquot.scheduler.simulate;

/** Any node that a pod fits on, and on it any GPU. */
final class AnyFit implements Policy {
    @Override
    public boolean draws() {
        return true;
    }

    @Override
    public double score(Demand demand, NodeState before, NodeState after) {
        return 0;
    }
}
