package io.aliquot.scheduler.scoring;

import io.aliquot.scheduler.scoring.fragmentation.Fragmentation;

/**
 * A part of what a place is liked for.
 *
 * @param name {@code fullness}; {@code waste}, {@code scarcity} and {@code idleness} of {@link Fragmentation}
 * @param thousandths of a GPU, or, of fullness, of the node; a cost where it isn't fullness
 */
public record ScoreTerm(String name, double thousandths) {}
