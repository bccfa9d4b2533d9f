/** Repairs after faults: writes whose outcome is unknown, and GPUs that are allocated twice. */
@NullMarked
package io.aliquot.scheduler.recovery;

import org.jspecify.annotations.NullMarked;
