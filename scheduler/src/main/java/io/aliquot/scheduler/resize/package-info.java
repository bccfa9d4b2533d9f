/** Changes what a running pod holds of its GPUs. */
@NullMarked
package io.aliquot.scheduler.resize;

import org.jspecify.annotations.NullMarked;
