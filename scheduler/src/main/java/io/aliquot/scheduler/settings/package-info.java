/** Every setting of the process, in one class. */
@NullMarked
package io.aliquot.scheduler.settings;

import org.jspecify.annotations.NullMarked;
