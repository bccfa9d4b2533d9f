/** Which GPUs may get new vGPUs: XID errors, what NVML reports about a GPU, and how a GPU becomes healthy again. */
@NullMarked
package io.aliquot.deviceplugin.health;

import org.jspecify.annotations.NullMarked;
