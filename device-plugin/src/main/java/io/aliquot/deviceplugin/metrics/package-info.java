/** Prometheus metrics and health probes over HTTP. */
@NullMarked
package io.aliquot.deviceplugin.metrics;

import org.jspecify.annotations.NullMarked;
