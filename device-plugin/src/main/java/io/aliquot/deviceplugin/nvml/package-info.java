/** GPUs, their health and how they are connected, from NVIDIA's management library. */
@NullMarked
package io.aliquot.deviceplugin.nvml;

import org.jspecify.annotations.NullMarked;
