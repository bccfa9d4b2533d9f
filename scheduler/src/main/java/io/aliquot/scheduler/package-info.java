/** The scheduler's process: an extender beside kube-scheduler, admission webhooks, and the ledger of who holds what. */
@NullMarked
package io.aliquot.scheduler;

import org.jspecify.annotations.NullMarked;
