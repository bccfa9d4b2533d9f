package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.explain.Explainer;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.scoring.NodeScoring;
import io.aliquot.scheduler.scoring.fragmentation.Fragmentation;
import io.aliquot.scheduler.server.ExtenderHandler;
import io.aliquot.scheduler.settings.Settings;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import java.time.InstantSource;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import tools.jackson.databind.json.JsonMapper;

@Configuration(proxyBeanMethods = false)
class ExtenderConfiguration {
    @Bean
    LedgerEvents ledgerNews() {
        return new LedgerEvents();
    }

    @Bean
    Ledger ledger(LedgerEvents news) {
        return new Ledger(System::nanoTime, news);
    }

    @Bean
    NodeScoring nodeScoring(Ledger ledger) {
        return new NodeScoring(ledger, new Fragmentation());
    }

    @Bean
    PendingPods pendingPods() {
        return new PendingPods(System::nanoTime);
    }

    @Bean
    FilterAndPrioritize placing(
            Ledger ledger, NodeScoring scoring, Cluster cluster, PendingPods pending, Settings settings) {
        return new FilterAndPrioritize(
                ledger, scoring, cluster, pending, settings.nodePlacement(), settings.nodesPerFilter());
    }

    /** Fed by package cluster. */
    @Bean
    Budgets budgets() {
        return new Budgets();
    }

    @Bean
    PreemptionReservations keptRooms(Ledger ledger, PendingPods pending, Cluster cluster) {
        return new PreemptionReservations(ledger, pending, cluster, System::nanoTime, InstantSource.system());
    }

    @Bean
    Preemptor preempting(
            Ledger ledger, Cluster cluster, PendingPods pending, Budgets budgets, PreemptionReservations kept) {
        return new Preemptor(ledger, cluster, pending, budgets, kept);
    }

    @Bean
    Waker waker(Ledger ledger, LedgerEvents news, PendingPods pending, PreemptionReservations kept, Cluster cluster) {
        return new Waker(ledger, news, pending, kept, cluster, System::nanoTime);
    }

    @Bean
    Evictor evictor(
            Ledger ledger,
            PendingPods pending,
            Cluster cluster,
            Budgets budgets,
            PreemptionReservations kept,
            Waker waker,
            MeterRegistry metrics) {
        return new Evictor(ledger, pending, cluster, budgets, kept, waker, metrics, System::nanoTime);
    }

    @Bean
    WriteReconciler outcomes(Ledger ledger, Cluster cluster) {
        return new WriteReconciler(ledger, cluster);
    }

    @Bean
    Resizer resizer(Ledger ledger, Cluster cluster, WriteReconciler outcomes) {
        return new Resizer(ledger, cluster, outcomes);
    }

    @Bean
    Binder binder(Ledger ledger, Cluster cluster, PendingPods pending, WriteReconciler outcomes) {
        return new Binder(ledger, cluster, pending, outcomes, System::nanoTime);
    }

    @Bean
    VerbMetrics verbMeter(MeterRegistry metrics) {
        return new VerbMetrics(metrics);
    }

    @Bean
    ExtenderHandler verbs(
            FilterAndPrioritize placing,
            Binder binder,
            Preemptor preempting,
            VerbMetrics meter,
            MeterRegistry metrics,
            JsonMapper json) {
        return new JsonExtenderHandler(placing, binder, preempting, meter, metrics, json);
    }

    @Bean(destroyMethod = "close")
    PeriodicTasks housekeeping(
            Ledger ledger,
            LedgerEvents news,
            PendingPods pending,
            Cluster cluster,
            WriteReconciler outcomes,
            Waker waker,
            Evictor evictor,
            Explainer explainer,
            MeterRegistry metrics) {
        var storyteller = new PendingPodEvents(pending, explainer, ledger, cluster, System::nanoTime);
        return new PeriodicTasks(
                ledger, waker, evictor, new Auditor(ledger, news, cluster, metrics), outcomes, storyteller);
    }

    @Bean
    LedgerMetrics ledgerMetrics(
            Ledger ledger, PendingPods pending, Cluster cluster, Explainer explainer, PrometheusMeterRegistry metrics) {
        var causes = new PendingCauseCounts(pending, explainer, ledger, cluster, System::nanoTime);
        var collector = new LedgerMetrics(ledger, pending, causes);
        metrics.getPrometheusRegistry().register(collector);
        return collector;
    }
}
