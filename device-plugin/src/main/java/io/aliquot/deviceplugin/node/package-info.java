/** The agent's own Node in the API server: watched, patched, and read for the admin's settings. */
@NullMarked
package io.aliquot.deviceplugin.node;

import org.jspecify.annotations.NullMarked;
