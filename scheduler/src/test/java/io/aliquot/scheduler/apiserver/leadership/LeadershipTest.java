package io.aliquot.scheduler.apiserver.leadership;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.pods.Fence;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
import io.aliquot.testing.Await;
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
        leadership.onLease(lease("pod-b_0", 3));
    }

    @AfterEach
    void close() {
        mayList.release(100);
        leadership.close();
    }

    @Test
    void withoutALeaseOrWithAnotherHolderItWaits() {
        leadership.onLeaseDeleted();
        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.NotLeading.class);
        assertThat(leadership.waitsFor()).isPresent();
        leadership.onLease(lease("pod-ab_1", 1));
        assertThat(leadership.status())
                .isEqualTo(new Cluster.LeaderStatus.NotLeading(
                        "waiting for the kube-scheduler in this pod to lead: pod-ab_1 holds the Lease"));
        assertThat(leadership.waitsFor()).isEmpty();
        assertThat(lists).hasValue(0);
    }

    @Test
    void aNewLeaderPlacesPodsOnlyAfterItHasListedThem() throws Exception {
        leadership.onLease(lease("pod-a_1", 4));
        awaitListing();
        assertThat(leadership.status())
                .isEqualTo(new Cluster.LeaderStatus.NotLeading(
                        "taking over: reading which pods the previous leader has bound"));
        mayList.release();
        await(new Leads(new Fence("pod-a_1", 4)));
    }

    @Test
    void aRenewalChangesNothing() throws Exception {
        mayList.release(10);
        leadership.onLease(lease("pod-a_1", 4));
        await(new Leads(new Fence("pod-a_1", 4)));
        leadership.onLease(lease("pod-a_1", 4));
        assertThat(leadership.status()).isInstanceOf(Leads.class);
        assertThat(lists).hasValue(1);
    }

    @Test
    void everyTakeoverListsAgain() throws Exception {
        mayList.release();
        leadership.onLease(lease("pod-a_1", 4));
        await(new Leads(new Fence("pod-a_1", 4)));
        leadership.onLease(lease("pod-b_1", 5));
        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.NotLeading.class);
        leadership.onLease(lease("pod-a_1", 6));
        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.NotLeading.class);
        mayList.release();
        await(new Leads(new Fence("pod-a_1", 6)));
        assertThat(lists).hasValue(2);
    }

    /** A watch that was interrupted misses the leader in between, and the transitions count from 0 again. */
    @Test
    void aRecreatedLeaseStartsANewTerm() throws Exception {
        mayList.release();
        leadership.onLease(lease("first", "pod-a_1", 0));
        await(new Leads(new Fence("pod-a_1", 0)));

        leadership.onLease(lease("second", "pod-a_1", 0));

        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.NotLeading.class);
        mayList.release();
        await(new Leads(new Fence("pod-a_1", 0)));
        assertThat(lists).hasValue(2);
    }

    @Test
    void withoutALeaseNoPodIsPlaced() throws Exception {
        mayList.release(10);
        leadership.onLease(lease("pod-a_1", 4));
        await(new Leads(new Fence("pod-a_1", 4)));

        leadership.onLeaseDeleted();

        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.NotLeading.class);
        assertThat(leadership.waitsFor()).isPresent();
    }

    /** kube-scheduler releases the Lease when it stops: then the Lease has no holder. */
    @Test
    void aReleasedLeaseEndsTheTerm() throws Exception {
        mayList.release(10);
        leadership.onLease(lease("pod-a_1", 4));
        await(new Leads(new Fence("pod-a_1", 4)));

        leadership.onLease(lease("", 4));

        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.NotLeading.class);
        assertThat(leadership.waitsFor()).isEmpty();
    }

    @Test
    void aLeaseLostWhileListingDoesNotStartPlacement() throws Exception {
        leadership.onLease(lease("pod-a_1", 4));
        awaitListing();
        leadership.onLease(lease("pod-b_1", 5));
        leadership.onLease(lease("pod-a_1", 6));
        mayList.release();
        Await.await(() -> lists.get() > 0);
        awaitListing(); // for term 6, on the thread that has ended the list for term 4
        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.NotLeading.class);
    }

    @Test
    void aFailedListIsTriedAgain() throws Exception {
        listWorks = false;
        mayList.release();
        leadership.onLease(lease("pod-a_1", 4));
        Await.await(() -> lists.get() >= 1);
        assertThat(leadership.status()).isInstanceOf(Cluster.LeaderStatus.NotLeading.class);
        listWorks = true;
        mayList.release();
        await(new Leads(new Fence("pod-a_1", 4)));
    }

    /** What the one before it sent last may still reach an API server, under the fence of the Lease as it is. */
    @Test
    void aProcessBesideALeadingKubeSchedulerChangesTheFenceBeforeItPlaces() throws Exception {
        mayList.release(10);
        try (var restarted = new Leadership("pod-a", Duration.ZERO, replacing::add, () -> true)) {
            Lease found = lease("pod-a_1", 4);
            restarted.onLease(found);
            restarted.onLease(found);
            Lease renewed = lease("pod-a_1", 4);
            restarted.onLease(renewed);
            Lease replaced = lease("pod-a_1", 5);
            replaced.getMetadata().setResourceVersion(renewed.getMetadata().getResourceVersion());
            assertThat(replacing.poll(10, TimeUnit.SECONDS))
                    .as("only after it was renewed: a dead holder's is not to last longer")
                    .isEqualTo(replaced);

            restarted.onLease(lease("pod-a_1", 4)); // renewed before that: a conflict
            assertThat(replacing.poll(10, TimeUnit.SECONDS)).isNotNull();
            assertThat(restarted.status()).isInstanceOf(Cluster.LeaderStatus.NotLeading.class);

            restarted.onLease(lease("pod-a_1", 5));
            await(restarted, new Leads(new Fence("pod-a_1", 5)));
            assertThat(replacing).isEmpty();
        }
    }

    private void awaitListing() {
        Await.await(mayList::hasQueuedThreads);
    }

    private void await(Cluster.LeaderStatus standing) {
        await(leadership, standing);
    }

    private static void await(Leadership leadership, Cluster.LeaderStatus standing) {
        Await.await(standing.toString(), () -> leadership.status().equals(standing));
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
    /** Regression: an Error ended the takeover, and nothing said so. */
    @Test
    void anErrorWhileTakingOverFailsTheLivenessProbe() throws Exception {
        try (var failing = new Leadership("pod-a", Duration.ZERO, replacing::add, () -> {
            throw new StackOverflowError("of this test");
        })) {
            failing.onLease(lease("pod-b_0", 3));
            assertThat(failing.broken()).isEmpty();
            failing.onLease(lease("pod-a_1", 4));
            Await.await("the failure", () -> failing.broken().isPresent());
            assertThat(failing.broken().orElseThrow()).contains("StackOverflowError");
        }
    }
}
