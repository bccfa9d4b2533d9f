/**
 * Which GPUs of a node a pod gets, why it gets none, and which node is best. Pure functions of what is asked and what
 * is there; who holds what is package {@code ledger}'s.
 */
@NullMarked
package io.aliquot.scheduler.placement;

import org.jspecify.annotations.NullMarked;
