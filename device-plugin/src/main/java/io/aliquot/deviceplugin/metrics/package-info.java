/** The registry of metrics, and the agent's own, which other packages set. */
@NullMarked
package io.aliquot.deviceplugin.metrics;

import org.jspecify.annotations.NullMarked;
