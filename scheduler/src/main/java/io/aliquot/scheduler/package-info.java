/**
 * The scheduler's process: an extender of kube-scheduler, admission webhooks, an aggregated API, and the ledger of
 * allocations.
 */
@NullMarked
package io.aliquot.scheduler;

import org.jspecify.annotations.NullMarked;
