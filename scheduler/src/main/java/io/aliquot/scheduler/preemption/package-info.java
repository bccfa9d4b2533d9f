/**
 * Preemption: which pods to evict for a pod of higher priority, their eviction, and the reservation of the capacity
 * that they free.
 */
@NullMarked
package io.aliquot.scheduler.preemption;

import org.jspecify.annotations.NullMarked;
