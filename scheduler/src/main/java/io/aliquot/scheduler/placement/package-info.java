/**
 * Selects the GPUs of a node for a pod, or says why the node does not fit. {@link
 * io.aliquot.scheduler.placement.GpuSelector} is the entry point: a pure function of a {@link
 * io.aliquot.scheduler.placement.PodGpuRequest} and the node's {@link io.aliquot.scheduler.placement.GpuFreeCapacity}.
 * Package {@code ledger} records what each pod holds.
 */
@NullMarked
package io.aliquot.scheduler.placement;

import org.jspecify.annotations.NullMarked;
