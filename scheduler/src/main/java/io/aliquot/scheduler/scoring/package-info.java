/**
 * Which nodes a pod fits on and which of them is best: caches of the nodes' answers and of the scores of candidates. A
 * {@link io.aliquot.scheduler.scoring.ScoringPolicy} computes the scores; which pod holds what is in package
 * {@code ledger}, which GPUs of a node a pod gets in package {@code placement}.
 */
@NullMarked
package io.aliquot.scheduler.scoring;

import org.jspecify.annotations.NullMarked;
