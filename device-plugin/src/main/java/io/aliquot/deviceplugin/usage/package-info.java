/** Which container uses how much of which GPU: a sample each second of what NVML says, compared with the regions; its history. */
@NullMarked
package io.aliquot.deviceplugin.usage;

import org.jspecify.annotations.NullMarked;
