/** What a line of the log says beside its message. */
@NullMarked
package io.aliquot.scheduler.logging;

import org.jspecify.annotations.NullMarked;
