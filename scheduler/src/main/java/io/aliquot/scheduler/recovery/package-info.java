/**
 * Repairs after faults: writes whose outcome is unknown and GPUs that are allocated twice; and the resizing of running
 * pods, whose outcome may be unknown too.
 */
@NullMarked
package io.aliquot.scheduler.recovery;

import org.jspecify.annotations.NullMarked;
