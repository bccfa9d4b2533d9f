/** Additional fields of log lines. */
@NullMarked
package io.aliquot.scheduler.logging;

import org.jspecify.annotations.NullMarked;
