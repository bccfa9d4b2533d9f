/**
 * The ledger as Prometheus metrics: capacity, allocated, free and stranded, by node.
 */
@NullMarked
package io.aliquot.scheduler.metrics;

import org.jspecify.annotations.NullMarked;
