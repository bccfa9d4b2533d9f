package io.aliquot.scheduler.ledger;

/** A pod. Only the uid identifies it, since another pod can get the same name. */
public record PodId(String namespace, String name, String uid) {
    /** The form of a pod in every log line. */
    @Override
    public String toString() {
        return "pod=" + namespace + "/" + name + " uid=" + uid;
    }
}
