/** The scoring policy {@code fragmentation}: leaves as much free capacity as possible that later pods can use. */
@NullMarked
package io.aliquot.scheduler.scoring.fragmentation;

import org.jspecify.annotations.NullMarked;
