package io.aliquot.scheduler.ledger;

/**
 * A quota and what counts in it.
 *
 * @param used by pods that are bound or are being bound; reservations do not count
 */
public record QuotaUsage(Quota quota, QuotaAmount used) {}
