/** What this process counts, and its health, over HTTP. */
@NullMarked
package io.aliquot.deviceplugin.metrics;

import org.jspecify.annotations.NullMarked;
