/** The node's GPU inventory: built from what NVML lists, published to the Node with its extended resources. */
@NullMarked
package io.aliquot.deviceplugin.inventory;

import org.jspecify.annotations.NullMarked;
