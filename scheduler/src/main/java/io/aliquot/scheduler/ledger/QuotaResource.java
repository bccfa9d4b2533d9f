package io.aliquot.scheduler.ledger;

/** An amount that a quota limits. */
public enum QuotaResource {
    /** Device memory in MiB. */
    MEMORY("MiB"),
    /** Compute in percent of one GPU. */
    CORES("% of cores"),
    /** Number of vGPUs. */
    VGPUS("vGPUs");

    private final String unit;

    QuotaResource(String unit) {
        this.unit = unit;
    }

    String unit() {
        return unit;
    }

    public long of(QuotaAmount amount) {
        return switch (this) {
            case MEMORY -> amount.memoryMiB();
            case CORES -> amount.cores();
            case VGPUS -> amount.vgpus();
        };
    }
}
