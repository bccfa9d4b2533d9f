package io.aliquot.scheduler.cluster;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Fence;
import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.apiserver.Cluster.LeaderStatus.Leads;
import io.fabric8.kubernetes.api.model.coordination.v1.Lease;
import io.fabric8.kubernetes.api.model.coordination.v1.LeaseBuilder;
import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class LeadershipTest {
    private final AtomicInteger lists = new AtomicInteger();
    private final AtomicInteger versions = new AtomicInteger();
    private final Semaphore mayList = new Semaphore(0);
    private volatile boolean listWorks = true;
    private final BlockingQueue<Lease> replacing = new LinkedBlockingQueue<>();
    private final Leadership leadership = new Leadership("pod-a", Duration.ofMillis(20), replacing::add, () -> {
        mayList.acquireUninterruptibly();
        lists.incrementAndGet();
        return listWorks;
    });

    @BeforeEach
    void thisProcessIsOlderThanAnyTermOfItsKubeScheduler() {
        leadership.seen(lease("pod-b_0", 3));
    }

    @AfterEach
    void close() {
        mayList.release(100);
        leadership.close();
    }

    @Test
    void whoHasNoLeaseOrSeesAnothersWaits() {
        leadership.gone();
        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.Waits.class);
        assertThat(leadership.known()).isFalse();
        leadership.seen(lease("pod-ab_1", 1));
        assertThat(leadership.status())
                .isEqualTo(new Cluster.LeaderStatus.Waits(
                        "waiting for the kube-scheduler in this pod to lead: pod-ab_1 holds the Lease"));
        assertThat(leadership.known()).isTrue();
        assertThat(lists).hasValue(0);
    }

    @Test
    void aNewLeaderServesOnlyAfterItHasListedThePods() throws Exception {
        leadership.seen(lease("pod-a_1", 4));
        Thread.sleep(60);
        assertThat(leadership.status())
                .isEqualTo(
                        new Cluster.LeaderStatus.Waits("taking over: making sure of what the leader before has bound"));
        mayList.release();
        await(new Leads(new Fence("pod-a_1", 4)));
    }

    @Test
    void aRenewalChangesNothing() throws Exception {
        mayList.release(10);
        leadership.seen(lease("pod-a_1", 4));
        await(new Leads(new Fence("pod-a_1", 4)));
        leadership.seen(lease("pod-a_1", 4));
        assertThat(leadership.status()).isInstanceOf(Leads.class);
        assertThat(lists).hasValue(1);
    }

    @Test
    void everyTakeoverListsAgain() throws Exception {
        mayList.release();
        leadership.seen(lease("pod-a_1", 4));
        await(new Leads(new Fence("pod-a_1", 4)));
        leadership.seen(lease("pod-b_1", 5));
        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.Waits.class);
        leadership.seen(lease("pod-a_1", 6));
        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.Waits.class);
        mayList.release();
        await(new Leads(new Fence("pod-a_1", 6)));
        assertThat(lists).hasValue(2);
    }

    /** Whoever led between the two is seen by nobody who was cut off meanwhile, and the transitions count from 0 again. */
    @Test
    void aLeaseThatWasDeletedAndMadeAgainIsTakenOverAnew() throws Exception {
        mayList.release();
        leadership.seen(lease("first", "pod-a_1", 0));
        await(new Leads(new Fence("pod-a_1", 0)));

        leadership.seen(lease("second", "pod-a_1", 0));

        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.Waits.class);
        mayList.release();
        await(new Leads(new Fence("pod-a_1", 0)));
        assertThat(lists).hasValue(2);
    }

    @Test
    void withoutALeaseNobodyPlaces() throws Exception {
        mayList.release(10);
        leadership.seen(lease("pod-a_1", 4));
        await(new Leads(new Fence("pod-a_1", 4)));

        leadership.gone();

        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.Waits.class);
        assertThat(leadership.known()).isFalse();
    }

    /** kube-scheduler gives the Lease away when it is asked to end: nobody holds it then. */
    @Test
    void aLeaseThatIsGivenAwayIsNotOurs() throws Exception {
        mayList.release(10);
        leadership.seen(lease("pod-a_1", 4));
        await(new Leads(new Fence("pod-a_1", 4)));

        leadership.seen(lease("", 4));

        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.Waits.class);
        assertThat(leadership.known()).isTrue();
    }

    @Test
    void whoLosesTheLeaseWhileListingDoesNotServe() throws Exception {
        leadership.seen(lease("pod-a_1", 4));
        assertThat(waitUntilListing()).isTrue();
        leadership.seen(lease("pod-b_1", 5));
        mayList.release();
        Thread.sleep(60);
        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.Waits.class);
    }

    @Test
    void aListThatFailsIsTriedAgain() throws Exception {
        listWorks = false;
        mayList.release();
        leadership.seen(lease("pod-a_1", 4));
        while (lists.get() < 1) {
            Thread.sleep(5);
        }
        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.Waits.class);
        listWorks = true;
        mayList.release();
        await(new Leads(new Fence("pod-a_1", 4)));
    }

    /** What the one before it sent last may still reach an API server, under the fence of the Lease as it is. */
    @Test
    void aProcessThatFindsItsKubeSchedulerLeadingMakesTheFenceAnotherBeforeItServes() throws Exception {
        mayList.release(10);
        try (var restarted = new Leadership("pod-a", Duration.ZERO, replacing::add, () -> true)) {
            Lease found = lease("pod-a_1", 4);
            restarted.seen(found);
            restarted.seen(found);
            Lease renewed = lease("pod-a_1", 4);
            restarted.seen(renewed);
            Lease replaced = lease("pod-a_1", 5);
            replaced.getMetadata().setResourceVersion(renewed.getMetadata().getResourceVersion());
            assertThat(replacing.poll(10, TimeUnit.SECONDS))
                    .as("only after it was renewed: a dead holder's is not to last longer")
                    .isEqualTo(replaced);

            restarted.seen(lease("pod-a_1", 4)); // renewed before that: a conflict
            assertThat(replacing.poll(10, TimeUnit.SECONDS)).isNotNull();
            assertThat(restarted.status()).isInstanceOf(Cluster.LeaderStatus.Waits.class);

            restarted.seen(lease("pod-a_1", 5));
            await(restarted, new Leads(new Fence("pod-a_1", 5)));
            assertThat(replacing).isEmpty();
        }
    }

    private boolean waitUntilListing() throws InterruptedException {
        for (int i = 0; i < 500 && !mayList.hasQueuedThreads(); i++) {
            Thread.sleep(10);
        }
        return mayList.hasQueuedThreads();
    }

    private void await(Cluster.LeaderStatus standing) throws InterruptedException {
        await(leadership, standing);
    }

    private static void await(Leadership leadership, Cluster.LeaderStatus standing) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        while (!leadership.status().equals(standing) && System.nanoTime() < end) {
            Thread.sleep(5);
        }
        assertThat(leadership.status()).isEqualTo(standing);
    }

    private Lease lease(String holder, int transitions) {
        return lease("first", holder, transitions);
    }

    private Lease lease(String uid, String holder, int transitions) {
        return new LeaseBuilder()
                .withNewMetadata()
                .withUid(uid)
                .withResourceVersion(Integer.toString(versions.incrementAndGet()))
                .endMetadata()
                .withNewSpec()
                .withHolderIdentity(holder)
                .withLeaseTransitions(transitions)
                .endSpec()
                .build();
    }
}
