package io.aliquot.scheduler.placement;

import io.aliquot.api.GpuRequest;

/** A container that wants vGPUs. */
public record ContainerAsk(String name, ContainerKind kind, GpuRequest request) {}
