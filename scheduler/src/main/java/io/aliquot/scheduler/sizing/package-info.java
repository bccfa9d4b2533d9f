/**
 * Compares the cluster with the size that the memory of this process is for.
 */
@NullMarked
package io.aliquot.scheduler.sizing;

import org.jspecify.annotations.NullMarked;
