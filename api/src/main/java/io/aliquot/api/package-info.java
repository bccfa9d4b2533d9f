/**
 * What two of Aliquot's processes must agree on: names of resources, annotations and labels, paths, units, and text
 * formats, each with a parser and a printer. A parser's error says what it expected and what it found. The package
 * depends on no Kubernetes client.
 */
@NullMarked
package io.aliquot.api;

import org.jspecify.annotations.NullMarked;
