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
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Injects faults into the leader of two schedulers under load, or into the API server. A
 * {@link DoubleAllocationWatcher} checks that no GPU is allocated twice; scheduling must continue within 30 s. With
 * {@code ALIQUOT_LONG=1} in the environment every fault is tested, else the hardest one.
 */
@ExtendWith(LabExtension.class)
@Isolated
class LeaderFailoverIT {
    /**
     * The Lease expires after 15 s, and the other replica retries at most 4.4 s later. The rest is for a second of
     * grace, lists and backoffs.
     */
    private static final Duration FAILOVER_TIMEOUT = Duration.ofSeconds(30);
    /**
     * The time until a kube-scheduler that has lost the Lease exits, at most its renewDeadline of 10 s, and its pod's
     * status says that.
     */
    private static final Duration LEADERSHIP_LOST = Duration.ofSeconds(14);

    private static final Duration RESTART_TIMEOUT = Duration.ofMinutes(4);

    /** The time after a fault in which Bindings that were in flight may still succeed. */
    private static final Duration IN_FLIGHT = Duration.ofSeconds(5);

    private static final int NODES = 3;

    enum Fault {
        /** SIGKILL to both containers. */
        LEADER_KILLED {
            @Override
            void inject(Lab lab, SchedulerReplicas replicas, Pod leader) {
                replicas.signal(leader, SchedulerReplicas.KUBE_SCHEDULER, "SIGKILL");
                replicas.signal(leader, SchedulerReplicas.EXTENDER, "SIGKILL");
            }
        },
        /** SIGKILL to the extender only: the kubelet restarts it within seconds, and kube-scheduler keeps the Lease. */
        EXTENDER_KILLED {
            @Override
            void inject(Lab lab, SchedulerReplicas replicas, Pod leader) {
                replicas.signal(leader, SchedulerReplicas.EXTENDER, "SIGKILL");
            }
        },
        /**
         * The extender's JVM is stopped while it places pods, and continues after another leader has placed pods. What
         * the replica sends shortly before the stop is held back: renewals of the Lease and, by chance, Bindings. Its
         * kubelet is killed meanwhile, as it would replace the extender before that continues.
         */
        EXTENDER_PAUSED {
            @Override
            void inject(Lab lab, SchedulerReplicas replicas, Pod leader) throws InterruptedException {
                lab.kill(leader.getSpec().getNodeName() + "/kubelet");
                dropPacketsToApiServer(leader);
                TimeUnit.MILLISECONDS.sleep(2500); // the extender gives up a Binding after 3 s
                replicas.signal(leader, SchedulerReplicas.EXTENDER, "SIGSTOP");
            }

            @Override
            void heal(Lab lab, SchedulerReplicas replicas, Pod leader) {
                nft("delete table ip partition");
                replicas.signal(leader, SchedulerReplicas.EXTENDER, "SIGCONT");
                lab.start(leader.getSpec().getNodeName() + "/kubelet");
            }
        },
        /**
         * Only the extender's JVM hangs: kube-scheduler keeps the Lease until the liveness probes fail. Whether the
         * kubelet restarts kube-scheduler as well depends on the order of its probes.
         */
        EXTENDER_HANGS {
            @Override
            void inject(Lab lab, SchedulerReplicas replicas, Pod leader) {
                replicas.signal(leader, SchedulerReplicas.EXTENDER, "SIGSTOP");
            }
        },
        KUBE_SCHEDULER_PAUSED {
            @Override
            void inject(Lab lab, SchedulerReplicas replicas, Pod leader) {
                replicas.signal(leader, SchedulerReplicas.KUBE_SCHEDULER, "SIGSTOP");
            }

            @Override
            void heal(Lab lab, SchedulerReplicas replicas, Pod leader) {
                replicas.signal(leader, SchedulerReplicas.KUBE_SCHEDULER, "SIGCONT");
            }
        },
        /** Packets between the leader and the API server are dropped in both directions, without a reset. */
        PARTITIONED {
            @Override
            void inject(Lab lab, SchedulerReplicas replicas, Pod leader) {
                dropPacketsToApiServer(leader);
                nft("add chain ip partition from_api_server { type filter hook output priority -310 ; }");
                nft("add rule ip partition from_api_server ip daddr "
                        + leader.getStatus().getPodIP() + " tcp sport { 443, 6443 } drop");
            }

            @Override
            void heal(Lab lab, SchedulerReplicas replicas, Pod leader) {
                nft("delete table ip partition");
            }
        },
        /**
         * Both replicas lose their watches, and Bindings in flight get no response. The outage is too short for the
         * leader to lose the Lease.
         */
        API_SERVER_KILLED {
            @Override
            void inject(Lab lab, SchedulerReplicas replicas, Pod leader) throws InterruptedException {
                lab.kill("kube-apiserver");
                TimeUnit.SECONDS.sleep(3);
                lab.start("kube-apiserver");
            }
        },
        /** A rolling update, as an upgrade makes: old and new replicas run side by side. */
        ROLLING_UPDATE {
            @Override
            void inject(Lab lab, SchedulerReplicas replicas, Pod leader) {
                lab.kubectl("-n", Lab.NAMESPACE, "rollout", "restart", "deployment/aliquot-scheduler")
                        .expectSuccess();
            }
        };

        abstract void inject(Lab lab, SchedulerReplicas replicas, Pod leader) throws InterruptedException;

        void heal(Lab lab, SchedulerReplicas replicas, Pod leader) {}

        /**
         * Whether a binding shows that scheduling continues: another leader made it, or it was not in flight at the
         * fault.
         */
        boolean showsRecovery(DoubleAllocationWatcher.Binding binding, String holder, long injected) {
            return LEADER_MAY_STAY.contains(this)
                    ? binding.at() > injected + IN_FLIGHT.toNanos()
                    : binding.at() > injected && !binding.scheduler().equals(holder);
        }

        /** Drops a replica's packets to the API server. */
        private static void dropPacketsToApiServer(Pod replica) {
            nft("add table ip partition");
            nft("add chain ip partition to_api_server { type filter hook prerouting priority -310 ; }");
            nft("add rule ip partition to_api_server ip saddr "
                    + replica.getStatus().getPodIP() + " tcp dport { 443, 6443 } drop");
        }

        /** Runs in the lab's network namespace, like the tests. */
        private static void nft(String command) {
            Lab.execute(Duration.ofSeconds(20), List.of("nft", command)).expectSuccess();
        }
    }

    private static final Set<Fault> LEADER_MAY_STAY =
            EnumSet.of(Fault.EXTENDER_KILLED, Fault.EXTENDER_HANGS, Fault.API_SERVER_KILLED);

    static List<Fault> faults() {
        return LongTier.orElse(List.of(Fault.values()), List.of(Fault.EXTENDER_PAUSED));
    }

    @ParameterizedTest
    @MethodSource("faults")
    void noGpuIsAllocatedTwiceAndSchedulingContinues(Fault fault, Lab lab, TestNamespace namespace) throws Exception {
        var replicas = new SchedulerReplicas(lab);
        replicas.awaitReady(RESTART_TIMEOUT);
        assertThat(replicas.all())
                .extracting(pod -> pod.getSpec().getNodeName())
                .as("nodes of the replicas")
                .doesNotHaveDuplicates();
        long seed = ThreadLocalRandom.current().nextLong();
        System.out.println(fault + ", seed " + seed);
        AuditLog audit = AuditLog.fromNowOn(lab);
        try (var nodes = new HollowNodes(lab, NODES);
                var watcher = new DoubleAllocationWatcher(lab.client());
                var churn = new PodChurn(namespace, NODES, seed)) {
            awaitTrue(
                    "pods are bound and deleted",
                    EVENTUALLY,
                    () -> watcher.bindings().size() > 9 * nodes.count());
            String holder = replicas.holder();
            Pod leader = replicas.get(holder.replaceFirst("_.*", ""));
            int before = churn.refusals().size();
            long injected = System.nanoTime();
            try {
                fault.inject(lab, replicas, leader);
                awaitTrue(
                        "scheduling continues",
                        RESTART_TIMEOUT,
                        () -> watcher.bindings().stream()
                                .anyMatch(binding -> fault.showsRecovery(binding, holder, injected)));
                TimeUnit.SECONDS.sleep(3); // the old leader's requests in flight meet the new leader's writes
            } finally {
                fault.heal(lab, replicas, leader);
            }
            long healed = System.nanoTime();
            // The kube-scheduler of a paused extender was cut off for longer than that already.
            Duration settled = fault == Fault.EXTENDER_PAUSED ? IN_FLIGHT : LEADERSHIP_LOST;
            TimeUnit.NANOSECONDS.sleep(settled.toNanos());
            replicas.awaitReady(RESTART_TIMEOUT);

            report(fault, watcher, injected, healed, holder, audit);
            assertThat(watcher.violations()).isEmpty();
            assertThat(watcher.longestTimeWithoutBinding(injected, System.nanoTime()))
                    .as("the longest time without a binding")
                    .isLessThan(FAILOVER_TIMEOUT);
            if (fault == Fault.ROLLING_UPDATE) {
                assertThat(churn.refusals().subList(before, churn.refusals().size()))
                        .as("pods that admission refused during an upgrade")
                        .isEmpty();
            }
        }
    }

    private static void report(
            Fault fault, DoubleAllocationWatcher watcher, long injected, long healed, String holder, AuditLog audit) {
        long now = System.nanoTime();
        System.out.printf(
                "%s: scheduling resumed after %.1f s, longest time without a binding %.1f s; %d bindings"
                        + " before the fault, %d during it, %d after it; %d Bindings refused by the fence%n",
                fault,
                watcher.bindings().stream()
                                .filter(binding -> fault.showsRecovery(binding, holder, injected))
                                .mapToLong(binding -> binding.at() - injected)
                                .min()
                                .orElse(-1)
                        / 1e9,
                watcher.longestTimeWithoutBinding(injected, now).toMillis() / 1e3,
                count(watcher, 0, injected),
                count(watcher, injected, healed),
                count(watcher, healed, now),
                refusedByTheFence(audit));
    }

    private static long refusedByTheFence(AuditLog audit) {
        return audit.aliquotWrites().stream()
                .filter(write -> write.code() == 403 && write.object().startsWith("pods/binding "))
                .count();
    }

    private static long count(DoubleAllocationWatcher watcher, long from, long to) {
        return watcher.bindings().stream()
                .filter(binding -> binding.at() >= from && binding.at() < to)
                .count();
    }
}
