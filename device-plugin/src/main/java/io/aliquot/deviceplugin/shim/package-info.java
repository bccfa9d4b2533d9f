/** Putting the shim where containers can mount it. */
@NullMarked
package io.aliquot.deviceplugin.shim;

import org.jspecify.annotations.NullMarked;
