/**
 * The scheduler's placement and ledger for programs that have no cluster, such as the simulator: nodes, pods and free
 * capacity in terms of their own. Programs outside this module depend on this package only.
 */
@NullMarked
package io.aliquot.scheduler.simulation;

import org.jspecify.annotations.NullMarked;
