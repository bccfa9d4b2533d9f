/** HTTP servers for ports that every pod of the cluster can reach. */
@NullMarked
package io.aliquot.deviceplugin.http;

import org.jspecify.annotations.NullMarked;
