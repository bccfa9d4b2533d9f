/**
 * The REST API for users below {@code /api/v1}: nodes, GPUs, pods, shares and reservations from the ledger,
 * explanations of Pending pods, and the resize of running pods. A caller authenticates with a token of the cluster; the
 * cluster's RBAC decides what the caller may read and change.
 */
@NullMarked
package io.aliquot.scheduler.inspection;

import org.jspecify.annotations.NullMarked;
