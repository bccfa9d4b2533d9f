package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Pod;
import java.time.Duration;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Two replicas under load, and something happens to the one that leads, or to the API server: no GPU is sold twice, which
 * an {@link DoubleAllocationWatcher} sees to, and scheduling goes on within 30 s. {@code ALIQUOT_LONG=1} in the environment: every fault,
 * else the commonest and the hardest.
 */
@ExtendWith(LabExtension.class)
class LeaderFailoverIT {
    /** Until the Lease has run out and somebody looks, 15 s and at most 4.4; then a second's grace, lists, backoffs. */
    private static final Duration TAKEN_OVER = Duration.ofSeconds(30);
    /** Until a kube-scheduler that lost the Lease meanwhile has ended, at most its renewDeadline of 10 s, and is seen to have. */
    private static final Duration GIVEN_UP = Duration.ofSeconds(14);
    /** The kubelet waits longer before each restart of a container. */
    private static final Duration RESTARTED = Duration.ofMinutes(4);

    /** So long after the fault pods may be bound that were on their way. */
    private static final Duration ANSWERED_STILL = Duration.ofSeconds(5);

    private static final int NODES = 3;

    enum Fault {
        /** Both containers. */
        KILLED {
            @Override
            void begin(Lab lab, SchedulerReplicas replicas, Pod leader) {
                replicas.signal(leader, SchedulerReplicas.KUBE_SCHEDULER, "SIGKILL");
                replicas.signal(leader, SchedulerReplicas.EXTENDER, "SIGKILL");
            }
        },
        /** Its extender alone: the kubelet starts it anew within seconds, and its kube-scheduler keeps the Lease. */
        EXTENDER_KILLED {
            @Override
            void begin(Lab lab, SchedulerReplicas replicas, Pod leader) {
                replicas.signal(leader, SchedulerReplicas.EXTENDER, "SIGKILL");
            }
        },
        /**
         * Its JVM stops while it places pods, and goes on where it was after another one has placed pods. What it sends
         * before it stops is held back, the renewal of the Lease among it. Whether a Binding is among it is chance. Without
         * its kubelet, which would replace it before it goes on.
         */
        EXTENDER_PAUSED {
            @Override
            void begin(Lab lab, SchedulerReplicas replicas, Pod leader) throws InterruptedException {
                lab.kill(leader.getSpec().getNodeName() + "/kubelet");
                dropWhatComesFrom(leader);
                TimeUnit.MILLISECONDS.sleep(2500); // a Binding is given up after 3 s
                replicas.signal(leader, SchedulerReplicas.EXTENDER, "SIGSTOP");
            }

            @Override
            void end(Lab lab, SchedulerReplicas replicas, Pod leader) {
                nft("delete table ip cut");
                replicas.signal(leader, SchedulerReplicas.EXTENDER, "SIGCONT");
                lab.start(leader.getSpec().getNodeName() + "/kubelet");
            }
        },
        /**
         * Its JVM hangs, and it alone: until the kubelet has found that out kube-scheduler keeps the Lease. Whether it is
         * replaced, too, is a matter of when the kubelet asks which.
         */
        EXTENDER_HANGS {
            @Override
            void begin(Lab lab, SchedulerReplicas replicas, Pod leader) {
                replicas.signal(leader, SchedulerReplicas.EXTENDER, "SIGSTOP");
            }
        },
        KUBE_SCHEDULER_PAUSED {
            @Override
            void begin(Lab lab, SchedulerReplicas replicas, Pod leader) {
                replicas.signal(leader, SchedulerReplicas.KUBE_SCHEDULER, "SIGSTOP");
            }

            @Override
            void end(Lab lab, SchedulerReplicas replicas, Pod leader) {
                replicas.signal(leader, SchedulerReplicas.KUBE_SCHEDULER, "SIGCONT");
            }
        },
        /** No packet gets from it to the API server or back; nobody is told. */
        CUT_OFF {
            @Override
            void begin(Lab lab, SchedulerReplicas replicas, Pod leader) {
                dropWhatComesFrom(leader);
                nft("add chain ip cut back { type filter hook output priority -310 ; }");
                nft("add rule ip cut back ip daddr " + leader.getStatus().getPodIP() + " tcp sport { 443, 6443 } drop");
            }

            @Override
            void end(Lab lab, SchedulerReplicas replicas, Pod leader) {
                nft("delete table ip cut");
            }
        },
        /**
         * What both hear from and write to, with Bindings under way whose answer never comes. Too short for anybody to lose
         * the Lease.
         */
        API_SERVER_KILLED {
            @Override
            void begin(Lab lab, SchedulerReplicas replicas, Pod leader) throws InterruptedException {
                lab.kill("kube-apiserver");
                TimeUnit.SECONDS.sleep(3);
                lab.start("kube-apiserver");
            }
        },
        /** As an upgrade does: old and new replicas side by side. */
        REPLACED {
            @Override
            void begin(Lab lab, SchedulerReplicas replicas, Pod leader) {
                lab.kubectl("-n", Lab.NAMESPACE, "rollout", "restart", "deployment/aliquot-scheduler")
                        .expectSuccess();
            }
        };

        abstract void begin(Lab lab, SchedulerReplicas replicas, Pod leader) throws InterruptedException;

        void end(Lab lab, SchedulerReplicas replicas, Pod leader) {}

        /** Whether a pod that was bound shows that scheduling goes on: by another one, or late enough. */
        boolean over(DoubleAllocationWatcher.Bound bound, String holder, long struck) {
            return LEASE_MAY_STAY.contains(this)
                    ? bound.at() > struck + ANSWERED_STILL.toNanos()
                    : bound.at() > struck && !bound.scheduler().equals(holder);
        }

        /** The API server gets nothing that it sends. */
        private static void dropWhatComesFrom(Pod replica) {
            nft("add table ip cut");
            nft("add chain ip cut there { type filter hook prerouting priority -310 ; }");
            nft("add rule ip cut there ip saddr " + replica.getStatus().getPodIP() + " tcp dport { 443, 6443 } drop");
        }

        /** In the network of the lab, where this program runs too. */
        private static void nft(String command) {
            Lab.execute(Duration.ofSeconds(20), List.of("nft", command)).expectSuccess();
        }
    }

    private static final Set<Fault> LEASE_MAY_STAY =
            EnumSet.of(Fault.EXTENDER_KILLED, Fault.EXTENDER_HANGS, Fault.API_SERVER_KILLED);

    static List<Fault> faults() {
        return "1".equals(System.getenv("ALIQUOT_LONG"))
                ? List.of(Fault.values())
                : List.of(Fault.EXTENDER_KILLED, Fault.EXTENDER_PAUSED);
    }

    @ParameterizedTest
    @MethodSource("faults")
    void noGpuIsSoldTwiceAndTheOtherOneGoesOn(Fault fault, Lab lab, TestNamespace space) throws Exception {
        var replicas = new SchedulerReplicas(lab);
        replicas.awaitReady(RESTARTED);
        assertThat(replicas.all())
                .extracting(pod -> pod.getSpec().getNodeName())
                .as("nodes of the replicas")
                .doesNotHaveDuplicates();
        long seed = ThreadLocalRandom.current().nextLong();
        System.out.println(fault + ", seed " + seed);
        AuditLog audit = AuditLog.fromNowOn(lab);
        try (var nodes = new HollowNodes(lab, NODES);
                var observer = new DoubleAllocationWatcher(lab.client());
                var churn = new PodChurn(space, NODES, seed)) {
            awaitTrue("pods come and go", EVENTUALLY, () -> observer.bound().size() > 9 * nodes.count());
            String holder = replicas.holder();
            Pod leader = replicas.get(holder.replaceFirst("_.*", ""));
            int before = churn.refusals().size();
            long struck = System.nanoTime();
            try {
                fault.begin(lab, replicas, leader);
                awaitTrue(
                        "scheduling goes on",
                        RESTARTED,
                        () -> observer.bound().stream().anyMatch(bound -> fault.over(bound, holder, struck)));
                TimeUnit.SECONDS.sleep(3); // what the old one had under way now meets what the new one has done since
            } finally {
                fault.end(lab, replicas, leader);
            }
            long ended = System.nanoTime();
            TimeUnit.NANOSECONDS.sleep(GIVEN_UP.toNanos());
            replicas.awaitReady(RESTARTED);

            report(fault, observer, struck, ended, holder, audit);
            assertThat(observer.violations()).isEmpty();
            assertThat(observer.longestPause(struck, System.nanoTime()))
                    .as("the longest time in which nothing was bound")
                    .isLessThan(TAKEN_OVER);
            if (fault == Fault.REPLACED) {
                assertThat(churn.refusals().subList(before, churn.refusals().size()))
                        .as("pods that were not admitted during an upgrade")
                        .isEmpty();
            }
        }
    }

    private static void report(Fault fault, DoubleAllocationWatcher observer, long struck, long ended, String holder, AuditLog audit) {
        long now = System.nanoTime();
        System.out.printf(
                "%s: taken over after %.1f s, longest pause %.1f s; bound %d before, %d until its end, %d after; %d Bindings"
                        + " refused by the fence%n",
                fault,
                observer.bound().stream()
                                .filter(bound -> fault.over(bound, holder, struck))
                                .mapToLong(bound -> bound.at() - struck)
                                .min()
                                .orElse(-1)
                        / 1e9,
                observer.longestPause(struck, now).toMillis() / 1e3,
                count(observer, 0, struck),
                count(observer, struck, ended),
                count(observer, ended, now),
                refusedByTheFence(audit));
    }

    private static long refusedByTheFence(AuditLog audit) {
        return audit.ours().stream()
                .filter(write -> write.code() == 403 && write.object().startsWith("pods/binding "))
                .count();
    }

    private static long count(DoubleAllocationWatcher observer, long from, long to) {
        return observer.bound().stream()
                .filter(bound -> bound.at() >= from && bound.at() < to)
                .count();
    }
}
