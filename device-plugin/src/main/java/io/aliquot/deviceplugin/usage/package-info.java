/** Which container uses how much of which GPU: NVML's figures, attributed to containers, compared with their regions. */
@NullMarked
package io.aliquot.deviceplugin.usage;

import org.jspecify.annotations.NullMarked;
