/** The log: additional fields of its lines, and its level. */
@NullMarked
package io.aliquot.scheduler.logging;

import org.jspecify.annotations.NullMarked;
