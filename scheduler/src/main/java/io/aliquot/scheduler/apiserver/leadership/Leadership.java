package io.aliquot.scheduler.apiserver.leadership;

import io.aliquot.api.pods.Fence;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.NotLeading;
import io.aliquot.scheduler.server.health.Liveness;
import io.aliquot.scheduler.server.health.Readiness;
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
 * How a restarted extender invalidates the fence of its predecessor. If this process starts beside a kube-scheduler
 * that already leads, the Lease still shows the fence of the previous extender process, whose last writes can still be
 * in a buffer of a socket or a server. So this process increments the Lease's leaseTransitions itself, which makes that
 * fence an old one. kube-scheduler continues: its next renewal gets a conflict, and it reads the Lease and keeps the
 * value that it finds (client-go 1.35, tools/leaderelection, tryAcquireOrRenew). This process waits until
 * kube-scheduler has renewed the Lease once: if kube-scheduler is dead, too, each change of the Lease would delay the
 * election of another leader.
 */
/**
 * Tracks whether the kube-scheduler in this pod leads, and under which fence. After the Lease changed its holder, or
 * this process replaced a dead one, the extender waits a second, because a Binding of the previous leader can pass the
 * fence's policy for a moment (seen 5 ms later, kube-apiserver 1.35.4). Then it lists all pods, and only then places
 * any.
 */
public final class Leadership implements Readiness, Liveness, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Leadership.class);
    private static final String NOT_LEADING = "waiting for the kube-scheduler in this pod to lead: ";
    private static final NotLeading NO_LEASE = new NotLeading(NOT_LEADING + "no Lease yet");
    private static final NotLeading TAKING_OVER =
            new NotLeading("taking over: reading which pods the previous leader has bound");

    private final String holderPrefix;
    private final Duration grace;
    private final Consumer<Lease> replace;
    private final BooleanSupplier listPods;
    private final ScheduledExecutorService thread = Executors.newSingleThreadScheduledExecutor(
            Thread.ofPlatform().name("leadership").daemon().factory());
    private volatile Cluster.LeaderStatus status = NO_LEASE;
    /** Present while this pod's kube-scheduler holds the Lease. */
    private volatile Optional<Term> currentTerm = Optional.empty();

    /** The pod whose kube-scheduler holds the Lease. */
    private volatile Optional<String> leaderPod = Optional.empty();

    private volatile Optional<String> failure = Optional.empty();
    private boolean seenLease;
    /** The term that an earlier process of this pod may have led in. */
    private Optional<Term> inherited = Optional.empty();
    /** The version of the Lease at the first sight of {@link #inherited}. */
    private String inheritedVersion = "";

    /**
     * A period of leading without interruption. If another holder came in between, the Lease has more transitions, or,
     * if it was deleted in between, another uid, and its transitions count from 0 again.
     */
    private record Term(String leaseUid, Fence fence) {}

    /**
     * Waits for the first Lease.
     *
     * @param podName this pod's kube-scheduler holds the Lease as {@code <podName>_<uuid>}
     * @param replace writes the Lease if its version has not changed; called again after the next renewal if that fails
     * @param listPods reads all pods into the ledger; returns whether it succeeded
     */
    public Leadership(String podName, Duration grace, Consumer<Lease> replace, BooleanSupplier listPods) {
        this.holderPrefix = podName + "_";
        this.grace = grace;
        this.replace = replace;
        this.listPods = listPods;
    }

    public Cluster.LeaderStatus status() {
        return status;
    }

    /** The pod whose kube-scheduler holds the Lease; empty if none does. */
    public Optional<String> leaderPod() {
        return leaderPod;
    }

    /** Ready once the Lease exists, whichever pod holds it. */
    @Override
    public Optional<String> waitsFor() {
        return status == NO_LEASE ? Optional.of("kube-scheduler's Lease") : Optional.empty();
    }

    @Override
    public Optional<String> remark() {
        return Optional.of(status instanceof NotLeading notLeading ? notLeading.why() : "places pods: leads");
    }

    public synchronized void onLease(Lease lease) {
        boolean first = !seenLease;
        seenLease = true;
        String holder = lease.getSpec() == null ? null : lease.getSpec().getHolderIdentity();
        leaderPod = Optional.ofNullable(holder)
                .filter(name -> name.indexOf('_') > 0)
                .map(name -> name.substring(0, name.indexOf('_')));
        if (holder == null || !holder.startsWith(holderPrefix)) {
            currentTerm = Optional.empty();
            status = new NotLeading(
                    NOT_LEADING + (holder == null || holder.isEmpty() ? "no pod" : holder) + " holds the Lease");
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
            status = TAKING_OVER;
            if (!version.equals(inheritedVersion)) {
                thread.execute(() -> runOrFail(() -> replace.accept(oneTransitionLater(lease))));
            }
            return;
        }
        if (!currentTerm.equals(Optional.of(term))) {
            LOG.info("leading fence={}", fence.print());
            currentTerm = Optional.of(term);
            status = TAKING_OVER;
            takeOver(term, grace);
        }
    }

    public synchronized void onLeaseDeleted() {
        currentTerm = Optional.empty();
        leaderPod = Optional.empty();
        status = NO_LEASE;
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
                () -> runOrFail(() -> {
                    if (!currentTerm.equals(Optional.of(term))) {
                        return;
                    }
                    boolean done = false;
                    try {
                        done = listPods.getAsBoolean();
                    } catch (RuntimeException e) {
                        LOG.error("taking over failed, trying again", e);
                    }
                    if (!done) {
                        takeOver(term, Duration.ofSeconds(1));
                    } else {
                        startPlacing(term);
                    }
                }),
                delay.toMillis(),
                TimeUnit.MILLISECONDS);
    }

    private void runOrFail(Runnable task) {
        try {
            task.run();
        } catch (RuntimeException e) { // the next renewal of the Lease tries again
            LOG.error("a step of taking over the Lease failed", e);
        } catch (Error e) {
            LOG.error("taking over the Lease has ended", e);
            failure = Optional.of("taking over the Lease has ended: " + e);
            throw e;
        }
    }

    /** Only a restart helps: after an {@link Error} no step of a takeover is tried again. */
    @Override
    public Optional<String> broken() {
        return failure;
    }

    private synchronized void startPlacing(Term term) {
        if (currentTerm.equals(Optional.of(term))) {
            status = new Leads(term.fence());
            LOG.info("placing pods fence={}", term.fence().print());
        }
    }

    @Override
    public void close() {
        thread.shutdownNow();
    }
}
