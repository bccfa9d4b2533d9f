/** What a monitoring system asks for over HTTP: health probes, and the metrics of GPUs and containers. */
@NullMarked
package io.aliquot.deviceplugin.monitoring;

import org.jspecify.annotations.NullMarked;
