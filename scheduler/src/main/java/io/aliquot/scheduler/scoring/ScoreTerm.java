package io.aliquot.scheduler.scoring;

/**
 * One term of a score.
 *
 * @param name {@code fullness}; {@code waste} and {@code scarcity} of the policy {@code fragmentation}
 * @param thousandths of a GPU, and a cost; for {@code fullness} of the node
 */
public record ScoreTerm(String name, double thousandths) {}
