/**
 * Replays pods against nodes without a cluster, with several placement policies side by side: {@code java -jar
 * aliquot-scheduler.jar simulate}.
 */
@NullMarked
package io.aliquot.scheduler.simulate;

import org.jspecify.annotations.NullMarked;
