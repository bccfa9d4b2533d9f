/**
 * The scheduler's process: an extender of kube-scheduler, admission webhooks, a REST API, and the ledger of
 * allocations.
 */
@NullMarked
package io.aliquot.scheduler;

import org.jspecify.annotations.NullMarked;
