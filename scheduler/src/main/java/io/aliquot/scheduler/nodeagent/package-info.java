/**
 * What the leader does with the findings that node agents write into their nodes' inventories: events about unhealthy
 * GPUs, and events about and evictions of pods that use more GPU memory than their limit.
 */
@NullMarked
package io.aliquot.scheduler.nodeagent;

import org.jspecify.annotations.NullMarked;
