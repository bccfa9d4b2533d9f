/**
 * What users may look at and change over HTTP, below {@code /api/v1}: nodes, GPUs, pods, shares and reservations as the
 * ledger has them, why a pod waits, and shares of a running pod made larger or smaller. Who asks is known by a token of
 * the cluster, and may see and do here what the cluster's own rules let them see and do there.
 */
@NullMarked
package io.aliquot.scheduler.inspection;

import org.jspecify.annotations.NullMarked;
