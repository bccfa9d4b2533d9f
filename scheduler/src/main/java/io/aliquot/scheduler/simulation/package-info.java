/**
 * The scheduler's placement and ledger for programs that have no cluster, such as the simulator: nodes, pods, and an engine
 * that places pods on nodes. Amounts and scores are those of packages {@code placement} and {@code scoring}; programs outside
 * this module depend on these three packages only.
 */
@NullMarked
package io.aliquot.scheduler.simulation;

import org.jspecify.annotations.NullMarked;
