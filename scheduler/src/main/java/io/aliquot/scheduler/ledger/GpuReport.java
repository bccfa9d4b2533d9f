package io.aliquot.scheduler.ledger;

import io.aliquot.api.Gpu;
import io.aliquot.scheduler.placement.Amount;

/**
 * A GPU and what is taken of it, expectations included.
 *
 * @param slots vGPUs at most
 */
public record GpuReport(String node, Gpu gpu, int slots, Amount taken) {}
