/** The node agent's process: GPUs and their health from NVML, the kubelet's device plugin, the node's inventory. */
@NullMarked
package io.aliquot.deviceplugin;

import org.jspecify.annotations.NullMarked;
