/**
 * The interface by which the rest of the scheduler asks its cluster: the port, in the sense of ports and adapters. Package
 * {@code apiserver} is the adapter.
 */
@NullMarked
package io.aliquot.scheduler.cluster;

import org.jspecify.annotations.NullMarked;
