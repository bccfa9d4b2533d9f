/**
 * Explains why a pod is Pending for GPUs: what each node lacks, which smaller request would fit, and which pods could
 * be preempted. Reads the ledger and changes nothing.
 */
@NullMarked
package io.aliquot.scheduler.explain;

import org.jspecify.annotations.NullMarked;
