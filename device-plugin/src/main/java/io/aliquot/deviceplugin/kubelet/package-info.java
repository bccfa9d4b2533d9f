/** The kubelet's device plugin: slots, Allocate, and staying registered. */
@NullMarked
package io.aliquot.deviceplugin.kubelet;

import org.jspecify.annotations.NullMarked;
