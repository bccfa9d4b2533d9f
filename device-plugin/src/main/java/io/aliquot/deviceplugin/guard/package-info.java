/** Finds containers that do not see their limits or that abuse the files shared with them, and keeps what was found lately. */
@NullMarked
package io.aliquot.deviceplugin.guard;

import org.jspecify.annotations.NullMarked;
