package io.aliquot.scheduler.preemption;

import java.util.List;

/** The pods to evict from one node. */
public record EvictionPlan(List<Victim> victims, EvictionCost cost) {
    static final EvictionPlan NONE = new EvictionPlan(List.of());

    public EvictionPlan {
        victims = List.copyOf(victims);
    }

    public EvictionPlan(List<Victim> victims) {
        this(victims, EvictionCost.of(victims));
    }
}
