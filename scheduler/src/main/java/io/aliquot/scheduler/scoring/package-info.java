/**
 * Which node is best for a pod: {@link io.aliquot.scheduler.scoring.NodeRanking} ranks the nodes that fit by the pod's
 * {@link io.aliquot.scheduler.placement.PlacementPolicy}, from cached answers and scores. For the policy {@code
 * fragmentation} a {@link io.aliquot.scheduler.scoring.ScoringPolicy} scores each candidate placement, and so also decides
 * which GPU of the node a pod with one vGPU gets; for all other pods package {@code placement} decides that.
 */
@NullMarked
package io.aliquot.scheduler.scoring;

import org.jspecify.annotations.NullMarked;
