/** Replays pods against nodes without a cluster, with several placement policies side by side. */
@NullMarked
package io.aliquot.simulator;

import org.jspecify.annotations.NullMarked;
