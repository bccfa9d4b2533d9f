/** The settings of the process, all in one class. */
@NullMarked
package io.aliquot.scheduler.settings;

import org.jspecify.annotations.NullMarked;
