/**
 * Whom to evict for a pod of higher priority: as few and as unimportant pods as make room on one node. Pure functions
 * of what is held and what disruption budgets allow; who asks and who evicts is package {@code extender}'s.
 */
@NullMarked
package io.aliquot.scheduler.preemption;

import org.jspecify.annotations.NullMarked;
