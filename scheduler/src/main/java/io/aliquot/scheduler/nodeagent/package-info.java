/**
 * What node agents found: their reports in their nodes' inventories and the usage that is fetched from them, and what the
 * leader does about it: events about unhealthy GPUs, events about pods that a kubelet rejected, and events about and
 * evictions of pods that use more GPU memory than their limit.
 */
@NullMarked
package io.aliquot.scheduler.nodeagent;

import org.jspecify.annotations.NullMarked;
