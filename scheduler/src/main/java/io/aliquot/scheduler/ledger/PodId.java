package io.aliquot.scheduler.ledger;

/** A pod; the uid alone identifies it, since names come back. */
public record PodId(String namespace, String name, String uid) {
    /** How a pod appears in every log line. */
    @Override
    public String toString() {
        return "pod=" + namespace + "/" + name + " uid=" + uid;
    }
}
