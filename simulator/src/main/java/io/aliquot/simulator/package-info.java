/**
 * Replays pods against nodes without a cluster, with several placement policies side by side: {@code java -jar
 * aliquot-simulator.jar}.
 */
@NullMarked
package io.aliquot.simulator;

import org.jspecify.annotations.NullMarked;
