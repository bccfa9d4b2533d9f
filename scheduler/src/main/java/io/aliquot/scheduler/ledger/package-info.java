/**
 * Who holds how much of which GPU. Fed with what the cluster says of nodes and pods, asked and written by the extender
 * verbs. Knows neither HTTP nor a Kubernetes client, and every answer costs the GPUs of a node, however many pods there
 * are.
 */
@NullMarked
package io.aliquot.scheduler.ledger;

import org.jspecify.annotations.NullMarked;
