package io.aliquot.api;

/**
 * Which leadership a Binding was made under: {@code <holderIdentity>/<leaseTransitions>} of the scheduler's Lease. A
 * policy in the API server refuses a Binding whose fence is not the Lease's present one.
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

    public static Fence parse(String text) {
        int slash = text.lastIndexOf('/');
        if (slash < 1 || !text.substring(slash + 1).matches("[0-9]{1,9}")) {
            throw FormatException.expected("<holder>/<transitions>", text);
        }
        return new Fence(text.substring(0, slash), Integer.parseInt(text.substring(slash + 1)));
    }

    public String print() {
        return holder + "/" + transitions;
    }
}
