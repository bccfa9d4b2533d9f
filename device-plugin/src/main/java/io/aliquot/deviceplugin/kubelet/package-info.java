/** The kubelet's device plugin API: registration, ListAndWatch, Allocate. */
@NullMarked
package io.aliquot.deviceplugin.kubelet;

import org.jspecify.annotations.NullMarked;
