package io.aliquot.scheduler.preemption;

import java.util.List;

/** Whom to evict from one node. */
public record Plan(List<Victim> victims, Cost cost) {
    static final Plan NOBODY = new Plan(List.of());

    public Plan {
        victims = List.copyOf(victims);
    }

    public Plan(List<Victim> victims) {
        this(victims, Cost.of(victims));
    }
}
