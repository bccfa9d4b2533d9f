/**
 * What two processes must agree on: resource names, annotation and label keys, paths, units, and every text format,
 * each with a parser that says what it expected and a printer. Knows no Kubernetes client.
 */
@NullMarked
package io.aliquot.api;

import org.jspecify.annotations.NullMarked;
