/** When a process tries again. */
@NullMarked
package io.aliquot.api.retry;

import org.jspecify.annotations.NullMarked;
