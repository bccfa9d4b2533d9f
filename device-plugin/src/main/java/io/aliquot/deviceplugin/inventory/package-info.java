/** The node's GPU inventory: assembled from NVML, published to the Node. */
@NullMarked
package io.aliquot.deviceplugin.inventory;

import org.jspecify.annotations.NullMarked;
