/**
 * The API server as the rest of the scheduler sees it: adapters of pods, nodes and the Lease that feed the ledger, and
 * the writes. {@code client} has the HTTP requests, {@code watch} the watches. Only this package, {@code admission} and
 * {@code simulation} use fabric8's client.
 */
@NullMarked
package io.aliquot.scheduler.kubernetes;

import org.jspecify.annotations.NullMarked;
