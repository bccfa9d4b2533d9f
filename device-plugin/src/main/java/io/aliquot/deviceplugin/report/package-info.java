/** The use of this node's GPUs, served to the scheduler. */
@NullMarked
package io.aliquot.deviceplugin.report;

import org.jspecify.annotations.NullMarked;
