/**
 * The API server as the rest of the scheduler sees it: watches on pods, nodes and the Lease that feed the ledger, and
 * the few writes. The only package, with {@code admission}, that knows fabric8's client.
 */
@NullMarked
package io.aliquot.scheduler.cluster;

import org.jspecify.annotations.NullMarked;
