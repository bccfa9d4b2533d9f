/**
 * Which GPUs of a node a pod gets, or why the node does not fit: {@link io.aliquot.scheduler.placement.GpuSelector}
 * decides, a pure function of a {@link io.aliquot.scheduler.placement.PodGpuRequest} and the node's {@link
 * io.aliquot.scheduler.placement.GpuInfo}. {@link io.aliquot.scheduler.placement.PlacementPolicy} decides which of
 * the fitting GPUs and nodes is preferred; a new placement policy starts there. Where it scores candidates, a {@link
 * io.aliquot.scheduler.placement.CandidateChooser} decides, which package {@code scoring} implements.
 */
@NullMarked
package io.aliquot.scheduler.placement;

import org.jspecify.annotations.NullMarked;
