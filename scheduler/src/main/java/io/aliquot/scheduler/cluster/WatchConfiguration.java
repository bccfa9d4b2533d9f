package io.aliquot.scheduler.cluster;

import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.inspection.AccessReviews;
import io.aliquot.scheduler.inspection.PodLookup;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.server.Readiness;
import io.aliquot.scheduler.settings.Settings;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.coordination.v1.Lease;
import io.fabric8.kubernetes.api.model.policy.v1.PodDisruptionBudget;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import java.io.IOException;
import java.time.Clock;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.util.function.SingletonSupplier;

/** The watches, and what they tell to whom. */
@Configuration(proxyBeanMethods = false)
class WatchConfiguration {
    private static final Logger LOG = LoggerFactory.getLogger(WatchConfiguration.class);
    private static final Duration GRACE = Duration.ofSeconds(1);

    @Bean
    Events events(KubernetesClient kubernetes, Settings settings) {
        return new Events(kubernetes, settings.podName(), Clock.systemUTC());
    }

    @Bean
    ListWatchClient slimClient(KubernetesClient kubernetes) {
        return new ListWatchClient(kubernetes);
    }

    @Bean
    Leadership leadership(KubernetesClient kubernetes, ListWatchClient slim, Settings settings, Ledger ledger) {
        KubernetesClient once = RequestTimeouts.oneTry(kubernetes, GRACE);
        return new Leadership(
                settings.podName(),
                GRACE,
                lease -> {
                    try {
                        once.resource(lease).update();
                    } catch (KubernetesClientException e) {
                        LOG.warn("cannot count a transition of the Lease, trying again: {}", e.getMessage());
                    }
                },
                () -> {
                    try {
                        KubernetesCluster.takeStock(slim, ledger);
                        return true;
                    } catch (KubernetesClientException | IOException e) {
                        LOG.warn("cannot list pods, trying again: {}", e.getMessage());
                        return false;
                    }
                });
    }

    /** Asks for the watches only when it is asked: they feed the ledger's other users, which need this first. */
    @Bean
    Cluster cluster(
            KubernetesClient kubernetes,
            Leadership leadership,
            UnboundPodVersions unbound,
            WatchLatency lag,
            Events events,
            MeterRegistry metrics,
            ObjectProvider<Informer<?>> watches) {
        // Later, because some of them need what needs this; and once, because Spring takes its time to find them.
        Supplier<List<Informer<?>>> all =
                SingletonSupplier.of(() -> watches.stream().toList());
        return new KubernetesCluster(
                kubernetes, leadership, unbound, lag, () -> firstOf(all.get()), events, metrics, Clock.systemUTC());
    }

    /** What the first of them waits for that waits for something. */
    private static Optional<String> firstOf(List<Informer<?>> watches) {
        for (Informer<?> watch : watches) {
            Optional<String> waitsFor = watch.waitsFor();
            if (waitsFor.isPresent()) {
                return waitsFor;
            }
        }
        return Optional.empty();
    }

    @Bean
    AccessReviews reviews(KubernetesClient kubernetes) {
        return new KubernetesReviews(kubernetes);
    }

    @Bean
    PodLookup podsByName(KubernetesClient kubernetes) {
        return new KubernetesPods(kubernetes);
    }

    @Bean
    Readiness lease(Leadership leadership) {
        return new Readiness() {
            @Override
            public Optional<String> waitsFor() {
                return leadership.known() ? Optional.empty() : Optional.of("kube-scheduler's Lease");
            }

            @Override
            public Optional<String> remark() {
                return Optional.of(
                        leadership.status() instanceof Cluster.LeaderStatus.Waits waits
                                ? waits.why()
                                : "places pods: leads");
            }
        };
    }

    @Bean
    Informer<Node> nodes(ListWatchClient slim, Settings settings, Ledger ledger, Events events) {
        var reader = new NodeReader(settings.gpuPlacement());
        return Informer.start(
                slim,
                ResourceType.NODES,
                node -> {
                    NodeReader.Reading reading = reader.read(node);
                    if (!reading.problem().isEmpty()) {
                        events.warn(node, "GpuNodeLeftOut", reading.problem());
                    }
                    ledger.putNode(node.getMetadata().getName(), reading.facts());
                },
                node -> ledger.removeNode(node.getMetadata().getName()),
                System::nanoTime);
    }

    @Bean
    Informer<Pod> pods(
            ListWatchClient slim,
            Settings settings,
            Ledger ledger,
            PendingPods pending,
            Budgets budgets,
            UnboundPodVersions unbound,
            WatchLatency lag,
            Events events) {
        var agents = new NodeAgents(settings.namespace(), ledger::setAgentReady, ledger::setAgentMissing);
        return Informer.start(
                slim,
                ResourceType.PODS,
                pod -> {
                    agents.present(pod);
                    unbound.present(pod);
                    if (PodReader.ended(pod)) {
                        forget(pod, ledger, pending, budgets);
                    } else if (!PodReader.node(pod).isEmpty()) {
                        lag.told(pod.getMetadata().getUid());
                        PodReader.Reading reading = PodReader.bound(pod);
                        pending.forget(reading.pod().id().uid());
                        if (!reading.pod().shares().isEmpty()) {
                            budgets.putPod(reading.pod().id().uid(), PodReader.labels(pod));
                        }
                        ledger.observeBound(reading.pod());
                        reading.problems().forEach(problem -> events.warn(pod, "UnreadableAllocation", problem));
                    } else {
                        ledger.observeUnbound(pod.getMetadata().getUid(), PodReader.version(pod));
                        PodReader.refused(pod, settings.schedulerName())
                                .ifPresent(ask -> pending.refused(PodReader.id(pod), ask));
                    }
                },
                pod -> {
                    agents.gone(pod.getMetadata().getUid());
                    unbound.gone(pod.getMetadata().getUid());
                    lag.gone(pod.getMetadata().getUid());
                    if (PodReader.ended(pod)) {
                        forget(pod, ledger, pending, budgets);
                    } else {
                        vanish(pod, ledger, pending, budgets);
                    }
                },
                System::nanoTime);
    }

    private static void forget(Pod pod, Ledger ledger, PendingPods pending, Budgets budgets) {
        budgets.removePod(pod.getMetadata().getUid());
        pending.forget(pod.getMetadata().getUid());
        ledger.observeEnded(pod.getMetadata().getUid());
    }

    /**
     * A kubelet reports the end of a pod before it deletes it (since Kubernetes 1.27, KEP-3329), so one that goes without
     * was deleted by force, or its end was missed.
     */
    private static void vanish(Pod pod, Ledger ledger, PendingPods pending, Budgets budgets) {
        pending.forget(pod.getMetadata().getUid());
        budgets.removePod(pod.getMetadata().getUid());
        if (!PodReader.node(pod).isEmpty()) {
            ledger.observeBound(PodReader.bound(pod).pod());
        }
        if (ledger.deletedBeforeEnd(pod.getMetadata().getUid())) {
            LOG.info("gone without an end {}; what it held is free after its grace period", PodReader.id(pod));
        }
    }

    @Bean
    UnboundPodVersions unbound() {
        return new UnboundPodVersions();
    }

    @Bean
    WatchLatency lag(MeterRegistry metrics) {
        return new WatchLatency(metrics, System::nanoTime);
    }

    @Bean
    Informer<PodDisruptionBudget> disruptionBudgets(ListWatchClient slim, Budgets budgets) {
        return Informer.start(
                slim,
                ResourceType.DISRUPTION_BUDGETS,
                budget -> BudgetReader.read(budget)
                        .ifPresentOrElse(
                                budgets::putBudget,
                                () -> budgets.removeBudget(
                                        budget.getMetadata().getNamespace(),
                                        budget.getMetadata().getName())),
                budget -> budgets.removeBudget(
                        budget.getMetadata().getNamespace(),
                        budget.getMetadata().getName()),
                System::nanoTime);
    }

    @Bean
    Informer<Lease> leases(ListWatchClient slim, Settings settings, Leadership leadership) {
        return Informer.start(
                slim,
                ResourceType.lease(settings.namespace(), settings.leaseName()),
                leadership::seen,
                lease -> leadership.gone(),
                System::nanoTime);
    }

    @Bean(initMethod = "start")
    WatchHealthCheck pulse(
            KubernetesClient kubernetes,
            Settings settings,
            Informer<Node> nodes,
            Informer<Pod> pods,
            Informer<PodDisruptionBudget> budgets,
            Informer<Lease> leases,
            MeterRegistry metrics) {
        silence("nodes", nodes, metrics);
        silence("pods", pods, metrics);
        silence("poddisruptionbudgets", budgets, metrics);
        silence("lease", leases, metrics);
        return new WatchHealthCheck(leases, List.of(leases, pods, nodes, budgets), () -> {
            try {
                return Optional.ofNullable(kubernetes
                                .leases()
                                .inNamespace(settings.namespace())
                                .withName(settings.leaseName())
                                .get())
                        .map(lease -> lease.getMetadata().getResourceVersion());
            } catch (KubernetesClientException e) {
                return Optional.empty();
            }
        });
    }

    private static void silence(String kind, Informer<?> watched, MeterRegistry metrics) {
        Gauge.builder("aliquot.watch.silence", watched, one -> one.idleTime().toMillis() / 1000.0)
                .description("Time since the API server was last heard of on a watch, its bookmarks included")
                .baseUnit("seconds")
                .tag("of", kind)
                .register(metrics);
    }
}
