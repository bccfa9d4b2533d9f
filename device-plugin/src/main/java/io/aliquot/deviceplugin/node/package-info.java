/** The Node object: inventory, totals, and what its admin asks for. */
@NullMarked
package io.aliquot.deviceplugin.node;

import org.jspecify.annotations.NullMarked;
