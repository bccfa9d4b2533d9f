/** Trains the AOT cache of the scheduler's image. The scheduler itself uses nothing of it. */
@NullMarked
package io.aliquot.training;

import org.jspecify.annotations.NullMarked;
