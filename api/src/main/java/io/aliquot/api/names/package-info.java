/**
 * What two of Aliquot's processes must agree on: names of resources, annotations and labels, units, and text formats, each
 * with a parser and a printer. A parser's error says what it expected and what it found. The module depends on no
 * Kubernetes client.
 */
@NullMarked
package io.aliquot.api.names;

import org.jspecify.annotations.NullMarked;
