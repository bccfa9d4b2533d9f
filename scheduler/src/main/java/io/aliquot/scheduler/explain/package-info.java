/**
 * Why a pod waits for GPUs: node by node what is in the way, what it would have to ask for instead, and who would have
 * to go. Read from the ledger; changes nothing.
 */
@NullMarked
package io.aliquot.scheduler.explain;

import org.jspecify.annotations.NullMarked;
