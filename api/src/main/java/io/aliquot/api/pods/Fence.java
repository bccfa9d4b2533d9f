package io.aliquot.api.pods;

import io.aliquot.api.format.FormatException;

/**
 * The leader that wrote a Binding: {@code <holderIdentity>/<leaseTransitions>} of the scheduler's Lease. A policy in
 * the API server refuses a Binding whose fence differs from the Lease, so a former leader cannot bind.
 *
 * @param holder the Lease's {@code holderIdentity}, not empty
 * @param transitions the Lease's {@code leaseTransitions}, from 0
 */
public record Fence(String holder, int transitions) {
    public Fence {
        if (holder.isEmpty()) {
            throw FormatException.expected("a Lease's holder", holder);
        }
        if (transitions < 0) {
            throw FormatException.expected("a count of transitions", Integer.toString(transitions));
        }
    }

    public String print() {
        return holder + "/" + transitions;
    }
}
