/**
 * End-to-end tests of Aliquot on a real cluster, the lab that {@code ./aliquot up} starts: what users see, and what
 * happens when processes are killed.
 */
@NullMarked
package io.aliquot.lab;

import org.jspecify.annotations.NullMarked;
