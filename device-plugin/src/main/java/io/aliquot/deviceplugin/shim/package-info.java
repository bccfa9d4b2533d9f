/** The interception library on the host: installed where containers can mount it. */
@NullMarked
package io.aliquot.deviceplugin.shim;

import org.jspecify.annotations.NullMarked;
