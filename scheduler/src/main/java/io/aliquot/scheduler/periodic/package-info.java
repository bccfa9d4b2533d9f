/**
 * Runs the work that the other packages repeat, and reports a task that no longer completes.
 */
@NullMarked
package io.aliquot.scheduler.periodic;

import org.jspecify.annotations.NullMarked;
