package io.aliquot.scheduler.apiserver;

import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.aliquot.scheduler.apiserver.client.ListWatchClient;
import io.aliquot.scheduler.apiserver.client.ResourceType;
import io.aliquot.scheduler.apiserver.leadership.Leadership;
import io.aliquot.scheduler.apiserver.reader.BudgetReader;
import io.aliquot.scheduler.apiserver.reader.LimitRangeReader;
import io.aliquot.scheduler.apiserver.reader.NodeReader;
import io.aliquot.scheduler.apiserver.reader.QuotaReader;
import io.aliquot.scheduler.apiserver.watch.Informer;
import io.aliquot.scheduler.apiserver.watch.Informer.Progress;
import io.aliquot.scheduler.apiserver.watch.WatchHealthCheck;
import io.aliquot.scheduler.autoscaler.ScaleDownProtection;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes.NodeMetadata;
import io.aliquot.scheduler.extensionapi.objects.GpuShares;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.nodeagent.AcceptedClients;
import io.aliquot.scheduler.nodeagent.NodeReports;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.settings.Settings;
import io.fabric8.kubernetes.api.model.LimitRange;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.ResourceQuota;
import io.fabric8.kubernetes.api.model.coordination.v1.Lease;
import io.fabric8.kubernetes.api.model.node.v1.RuntimeClass;
import io.fabric8.kubernetes.api.model.policy.v1.PodDisruptionBudget;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import java.io.IOException;
import java.time.Clock;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.util.function.SingletonSupplier;

/** Connects the watches to the ledger and to the other components that follow the cluster. */
@Configuration(proxyBeanMethods = false)
class WatchConfiguration {
    private static final Logger LOG = LoggerFactory.getLogger(WatchConfiguration.class);
    private static final Duration GRACE = Duration.ofSeconds(1);

    @Bean
    ApiServerClient apiServerClient(Config config) {
        return new ApiServerClient(config);
    }

    @Bean
    ListWatchClient listWatchClient(ApiServerClient client, KubernetesSerialization json) {
        return new ListWatchClient(client, json);
    }

    @Bean
    Leadership leadership(KubernetesLease lease, ListWatchClient lists, Settings settings, Ledger ledger) {
        return new Leadership(settings.podName(), GRACE, lease::replace, () -> {
            try {
                KubernetesCluster.listBoundPods(lists, ledger);
                return true;
            } catch (RuntimeException | IOException e) {
                LOG.warn("cannot list pods, trying again: {}", e.getMessage());
                return false;
            }
        });
    }

    @Bean
    ScaleDownProtection scaleDownProtection(Settings settings, Ledger ledger, Cluster cluster, LongSupplier nanoTime) {
        return new ScaleDownProtection(settings.keepsNodesFrom(), ledger, cluster, nanoTime);
    }

    /** Looks up the watches lazily: components that the watches feed need this bean first. */
    @Bean
    Cluster cluster(
            ApiServerClient client,
            KubernetesSerialization json,
            Leadership leadership,
            UnboundPodVersions unbound,
            Events events,
            MeterRegistry metrics,
            ObjectProvider<Informer<?>> watches,
            Clock clock,
            LongSupplier nanoTime) {
        // Once, because the lookup in Spring is slow.
        Supplier<List<Informer<?>>> all =
                SingletonSupplier.of(() -> watches.stream().toList());
        return new KubernetesCluster(
                client,
                json,
                leadership,
                unbound,
                () -> all.get().stream()
                        .flatMap(watch -> watch.waitsFor().stream())
                        .findFirst(),
                events,
                metrics,
                clock,
                nanoTime);
    }

    @Bean
    Informer<Node> nodes(
            ListWatchClient lists,
            Settings settings,
            Ledger ledger,
            NodeReports reports,
            GpuNodes gpuNodes,
            HamiNodes hamiNodes,
            ScaleDownProtection scaleDownProtection,
            AcceptedClients acceptedClients,
            Events events,
            LongSupplier nanoTime) {
        var reader = new NodeReader(settings.gpuPlacement(), settings.nodeLabel(), settings.runtimeClass());
        return Informer.start(
                lists,
                ResourceType.NODES,
                node -> {
                    NodeReader.Reading reading = reader.read(node);
                    if (!reading.problem().isEmpty()) {
                        events.warn(node, "GpuNodeLeftOut", reading.problem());
                    }
                    NodeReader.missingGpuLabels(node)
                            .ifPresent(message -> events.warn(node, "GpuLabelsMissing", message));
                    String name = node.getMetadata().getName();
                    reading.report().ifPresentOrElse(reports::put, () -> reports.remove(name));
                    hamiNodes.put(name, reader.isHamis(node));
                    ledger.putNode(name, reading.facts());
                    NodeMetadata metadata = NodeReader.metadata(node, reading);
                    gpuNodes.put(metadata);
                    acceptedClients.put(name, metadata.version(), NodeReader.annotations(node));
                    scaleDownProtection.put(
                            name,
                            metadata.version(),
                            settings.nodeLabel().isOn(metadata.labels()),
                            metadata.labels(),
                            NodeReader.annotations(node));
                },
                node -> {
                    reports.remove(node.getMetadata().getName());
                    hamiNodes.put(node.getMetadata().getName(), false);
                    ledger.removeNode(node.getMetadata().getName());
                    gpuNodes.remove(node.getMetadata().getName());
                    scaleDownProtection.remove(node.getMetadata().getName());
                    acceptedClients.remove(node.getMetadata().getName());
                },
                List.of(new Progress(gpuNodes::listed, gpuNodes::reached)),
                nanoTime);
    }

    @Bean
    Informer<Pod> pods(
            ListWatchClient lists,
            PodEventHandler handler,
            GpuShares shares,
            GpuNodes gpuNodes,
            LongSupplier nanoTime) {
        return Informer.start(
                lists,
                ResourceType.PODS,
                handler::onPresent,
                handler::onGone,
                List.of(
                        new Progress(shares::listed, shares::reached),
                        new Progress(gpuNodes::listed, gpuNodes::reached)),
                nanoTime);
    }

    @Bean
    Informer<PodDisruptionBudget> disruptionBudgets(ListWatchClient lists, Budgets budgets, LongSupplier nanoTime) {
        return Informer.start(
                lists,
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
                nanoTime);
    }

    @Bean
    Informer<ResourceQuota> resourceQuotas(ListWatchClient lists, Ledger ledger, Events events, LongSupplier nanoTime) {
        return Informer.start(
                lists,
                ResourceType.RESOURCE_QUOTAS,
                object -> {
                    QuotaReader.Reading reading = QuotaReader.read(object);
                    reading.quota().ifPresentOrElse(ledger::putQuota, () -> removeQuota(ledger, object));
                    // The quota controller writes the object again and again, as pods come and go.
                    reading.problems().forEach(problem -> events.warnOnce(object, "GpuQuota", problem, problem));
                },
                object -> removeQuota(ledger, object),
                nanoTime);
    }

    private static void removeQuota(Ledger ledger, ResourceQuota object) {
        ledger.removeQuota(
                object.getMetadata().getNamespace(), object.getMetadata().getName());
    }

    @Bean
    Informer<RuntimeClass> runtimeClasses(ListWatchClient lists, Ledger ledger, LongSupplier nanoTime) {
        return Informer.start(
                lists,
                ResourceType.RUNTIME_CLASSES,
                object -> ledger.putRuntimeClass(object.getMetadata().getName(), object.getHandler()),
                object -> ledger.removeRuntimeClass(object.getMetadata().getName()),
                nanoTime);
    }

    /** Only for its events: nothing here depends on LimitRanges. */
    @Bean
    Informer<LimitRange> limitRanges(ListWatchClient lists, Events events, LongSupplier nanoTime) {
        return Informer.start(
                lists,
                ResourceType.LIMIT_RANGES,
                object -> LimitRangeReader.problems(object)
                        .forEach(problem -> events.warnOnce(object, "GpuLimitRange", problem, problem)),
                object -> {},
                nanoTime);
    }

    @Bean
    Informer<Lease> leases(ListWatchClient lists, Settings settings, Leadership leadership, LongSupplier nanoTime) {
        return Informer.start(
                lists,
                ResourceType.lease(settings.namespace(), KubernetesLease.NAME),
                leadership::onLease,
                lease -> leadership.onLeaseDeleted(),
                nanoTime);
    }

    @Bean
    WatchHealthCheck watchHealthCheck(
            KubernetesLease lease,
            Informer<Node> nodes,
            Informer<Pod> pods,
            Informer<PodDisruptionBudget> budgets,
            Informer<ResourceQuota> quotas,
            Informer<RuntimeClass> runtimeClasses,
            Informer<LimitRange> limitRanges,
            Informer<Lease> leases,
            MeterRegistry metrics) {
        Map.of(
                        "nodes", nodes,
                        "pods", pods,
                        "poddisruptionbudgets", budgets,
                        "resourcequotas", quotas,
                        "runtimeclasses", runtimeClasses,
                        "limitranges", limitRanges,
                        "lease", leases)
                .forEach((resource, informer) -> Gauge.builder(
                                "aliquot.watch.idle",
                                informer,
                                watch -> watch.idleTime().toMillis() / 1000.0)
                        .description("Time since the API server last sent anything on a watch, bookmarks included")
                        .baseUnit("seconds")
                        .tag("resource", resource)
                        .register(metrics));
        return new WatchHealthCheck(
                leases, List.of(leases, pods, nodes, budgets, quotas, runtimeClasses, limitRanges), lease::version);
    }
}
