/**
 * The files that containers mount, kept open so that no lease, lock or permission of a container delays the agent. By native
 * code, because Java opens no file without waiting.
 */
@NullMarked
package io.aliquot.deviceplugin.files;

import org.jspecify.annotations.NullMarked;
