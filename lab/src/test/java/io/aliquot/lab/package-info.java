/**
 * Aliquot on a real cluster: the lab that {@code ./aliquot up} brings up. What a user sees, and what happens when parts
 * are killed.
 */
@NullMarked
package io.aliquot.lab;

import org.jspecify.annotations.NullMarked;
