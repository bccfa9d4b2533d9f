package io.aliquot.scheduler.apiserver.watch;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Restarts watches whose connection is dead. A network that drops packets, or a firewall that has forgotten a
 * connection, does not end a watch: TCP notices after a quarter of an hour.
 *
 * <p>kube-scheduler renews its Lease every two seconds. If the watch on the Lease is idle, this check reads the Lease.
 * If it finds, twice in a row, a version that the watch has not received, then the API server is reachable and the
 * watch is dead, and so are probably the others, which use the same network path. Apart from that, a watch without
 * bookmarks counts as dead.
 */
public final class WatchHealthCheck {
    private static final Logger LOG = LoggerFactory.getLogger(WatchHealthCheck.class);
    /** kube-scheduler renews its Lease every retryPeriod, 2 s. */
    static final Duration RENEWED = Duration.ofSeconds(8);
    /** A bookmark comes about every minute (k8s.io/apiserver, pkg/storage/cacher, defaultBookmarkFrequency). */
    static final Duration BOOKMARKED = Duration.ofSeconds(150);

    private final Informer<?> lease;
    private final List<Informer<?>> all;
    private final Supplier<Optional<String>> readLease;
    private boolean suspected;

    /**
     * @param lease one of {@code all}
     * @param readLease reads the version of the Lease from the API server; empty if that fails
     */
    public WatchHealthCheck(Informer<?> lease, List<Informer<?>> all, Supplier<Optional<String>> readLease) {
        this.lease = lease;
        this.all = List.copyOf(all);
        this.readLease = readLease;
    }

    /** One run. */
    public void check() {
        for (Informer<?> informer : all) {
            if (informer.idleTime().compareTo(BOOKMARKED) > 0) {
                LOG.warn("the watch on {} received nothing for {}, restarting it", informer, BOOKMARKED);
                informer.restart();
            }
        }
        boolean behind = lease.idleTime().compareTo(RENEWED) > 0
                && readLease.get().filter(version -> !lease.knows(version)).isPresent();
        if (behind && suspected) {
            LOG.warn("the watch on the Lease missed a change, restarting all watches");
            all.forEach(Informer::restart);
        }
        suspected = behind && !suspected;
    }
}
