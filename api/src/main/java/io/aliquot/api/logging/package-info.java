/** How much a process logs. */
@NullMarked
package io.aliquot.api.logging;

import org.jspecify.annotations.NullMarked;
