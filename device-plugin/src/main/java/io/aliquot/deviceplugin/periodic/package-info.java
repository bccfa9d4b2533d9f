/** Work that a thread of its own repeats. */
@NullMarked
package io.aliquot.deviceplugin.periodic;

import org.jspecify.annotations.NullMarked;
