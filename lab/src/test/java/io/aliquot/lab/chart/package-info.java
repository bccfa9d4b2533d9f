/**
 * Tests of the Helm chart: the objects that it renders for each scenario, the values that it refuses, and, on a real
 * API server, the requests that its policies deny and allow.
 */
@NullMarked
package io.aliquot.lab.chart;

import org.jspecify.annotations.NullMarked;
