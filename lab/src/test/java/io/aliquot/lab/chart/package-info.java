/**
 * The Helm chart: what it renders for each scenario, what it refuses, and, on a real API server, what its policies
 * refuse and let through.
 */
@NullMarked
package io.aliquot.lab.chart;

import org.jspecify.annotations.NullMarked;
