/**
 * Names of resources, annotations and labels that two of Aliquot's processes must agree on. What their values mean is in
 * {@code nodes} and {@code pods}, each format with a parser and a printer. The module depends on no Kubernetes client.
 */
@NullMarked
package io.aliquot.api.names;

import org.jspecify.annotations.NullMarked;
