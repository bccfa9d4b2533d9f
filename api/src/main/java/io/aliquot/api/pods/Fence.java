package io.aliquot.api.pods;

import static io.aliquot.api.format.FormatException.expect;

/**
 * A fencing token, the leader that wrote a Binding: {@code <holderIdentity>/<leaseTransitions>} of the scheduler's
 * Lease. A policy in the API server refuses a Binding whose fence differs from the Lease, so a former leader cannot
 * bind.
 *
 * @param holder the Lease's {@code holderIdentity}, not empty
 * @param transitions the Lease's {@code leaseTransitions}, from 0
 */
public record Fence(String holder, int transitions) {
    public Fence {
        expect(!holder.isEmpty(), "a Lease's holder", holder);
        expect(transitions >= 0, "a count of transitions", transitions);
    }

    public String print() {
        return holder + "/" + transitions;
    }
}
