/** The HTTP requests of {@code gpu.aliquot.io/v1alpha1}, and their description. */
@NullMarked
package io.aliquot.scheduler.extensionapi.endpoints;

import org.jspecify.annotations.NullMarked;
