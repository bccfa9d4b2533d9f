/** The node agent: main loop, settings, and the wiring of the process. */
@NullMarked
package io.aliquot.deviceplugin;

import org.jspecify.annotations.NullMarked;
