package io.aliquot.scheduler.cluster;

import io.aliquot.api.Fence;
import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.apiserver.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.apiserver.Cluster.LeaderStatus.Waits;
import io.fabric8.kubernetes.api.model.coordination.v1.Lease;
import io.fabric8.kubernetes.api.model.coordination.v1.LeaseBuilder;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/*
 * A process that starts beside a kube-scheduler that leads already finds the fence of the process before it, whose last
 * writes may still lie in the buffers of a socket or a server. So it counts one more transition of the Lease itself,
 * which makes that fence an old one. kube-scheduler goes on: its next renewal meets a conflict, and it reads the Lease
 * and keeps what it finds there (client-go 1.35, tools/leaderelection, tryAcquireOrRenew). Only once it has renewed the
 * Lease: if it has died, too, others wait until the Lease has stood still for its duration, and longer for each change.
 */
/**
 * Whether the kube-scheduler in our pod leads, and under which fence. After the Lease changed hands, or this process
 * took over from one that died, we wait a second, in which a Binding of the leader before may still slip past the
 * fence's policy (seen 5 ms after, kube-apiserver 1.35.4), then list all pods, and only then place any.
 */
final class Leadership implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Leadership.class);
    private static final String NOT_LEADING = "waiting for the kube-scheduler in this pod to lead: ";
    private static final Waits NO_LEASE = new Waits(NOT_LEADING + "no Lease yet");
    private static final Waits TAKING_OVER = new Waits("taking over: making sure of what the leader before has bound");

    private final String holderPrefix;
    private final Duration grace;
    private final Consumer<Lease> replace;
    private final BooleanSupplier takeStock;
    private final ScheduledExecutorService thread = Executors.newSingleThreadScheduledExecutor(task -> {
        var made = new Thread(task, "leadership");
        made.setDaemon(true);
        return made;
    });
    private volatile Cluster.LeaderStatus standing = NO_LEASE;
    /** While the Lease is ours. */
    private volatile Optional<Term> ours = Optional.empty();

    private boolean seenAny;
    /** What a process before this one may have led in. */
    private Optional<Term> inherited = Optional.empty();
    /** Of the Lease when it was inherited. */
    private String inheritedVersion = "";

    /**
     * A time of leading without a break. Who holds the Lease again after somebody else did finds more transitions, or,
     * where it was deleted in between, another Lease: its transitions count from 0 again.
     */
    private record Term(String leaseUid, Fence fence) {}

    /**
     * Makes one.
     *
     * @param podName our kube-scheduler holds the Lease as {@code <podName>_<uuid>}
     * @param replace writes a Lease in place of the one of its version; if that fails it is called again after a renewal
     * @param takeStock reads all pods into the ledger; whether it worked
     */
    Leadership(String podName, Duration grace, Consumer<Lease> replace, BooleanSupplier takeStock) {
        this.holderPrefix = podName + "_";
        this.grace = grace;
        this.replace = replace;
        this.takeStock = takeStock;
    }

    Cluster.LeaderStatus status() {
        return standing;
    }

    /** Whether a Lease was seen, whoever holds it. */
    boolean known() {
        return standing != NO_LEASE;
    }

    synchronized void seen(Lease lease) {
        boolean first = !seenAny;
        seenAny = true;
        String holder = lease.getSpec() == null ? null : lease.getSpec().getHolderIdentity();
        if (holder == null || !holder.startsWith(holderPrefix)) {
            ours = Optional.empty();
            standing = new Waits(
                    NOT_LEADING + (holder == null || holder.isEmpty() ? "nobody" : holder) + " holds the Lease");
            return;
        }
        var fence = new Fence(holder, transitions(lease));
        var term = new Term(lease.getMetadata().getUid(), fence);
        String version = lease.getMetadata().getResourceVersion();
        if (first) {
            inherited = Optional.of(term);
            inheritedVersion = version;
        }
        if (inherited.equals(Optional.of(term))) {
            standing = TAKING_OVER;
            if (!version.equals(inheritedVersion)) {
                thread.execute(() -> replace.accept(oneTransitionLater(lease)));
            }
            return;
        }
        if (!ours.equals(Optional.of(term))) {
            LOG.info("leading fence={}", fence.print());
            ours = Optional.of(term);
            standing = TAKING_OVER;
            takeOver(term, grace);
        }
    }

    synchronized void gone() {
        ours = Optional.empty();
        standing = NO_LEASE;
    }

    private static Lease oneTransitionLater(Lease lease) {
        return new LeaseBuilder(lease)
                .editSpec()
                .withLeaseTransitions(transitions(lease) + 1)
                .endSpec()
                .build();
    }

    private static int transitions(Lease lease) {
        Integer transitions = lease.getSpec().getLeaseTransitions();
        return transitions == null ? 0 : transitions;
    }

    private void takeOver(Term term, Duration delay) {
        var unused = thread.schedule(
                () -> {
                    if (!ours.equals(Optional.of(term))) {
                        return;
                    }
                    boolean done = false;
                    try {
                        done = takeStock.getAsBoolean();
                    } catch (RuntimeException e) {
                        LOG.error("taking over failed, trying again", e);
                    }
                    if (!done) {
                        takeOver(term, Duration.ofSeconds(1));
                    } else {
                        serve(term);
                    }
                },
                delay.toMillis(),
                TimeUnit.MILLISECONDS);
    }

    private synchronized void serve(Term term) {
        if (ours.equals(Optional.of(term))) {
            standing = new Leads(term.fence());
            LOG.info("placing pods fence={}", term.fence().print());
        }
    }

    @Override
    public void close() {
        thread.shutdownNow();
    }
}
