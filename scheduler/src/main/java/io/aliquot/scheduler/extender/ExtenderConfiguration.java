package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.explain.Explainer;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.server.ExtenderHandler;
import io.aliquot.scheduler.settings.Settings;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import java.time.Duration;
import java.time.InstantSource;
import java.util.List;
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
    PendingPods pendingPods() {
        return new PendingPods(System::nanoTime);
    }

    @Bean
    FilterAndPrioritize placing(Ledger ledger, Cluster cluster, PendingPods pending, Settings settings) {
        return new FilterAndPrioritize(ledger, cluster, pending, settings.nodePlacement(), settings.nodesPerFilter());
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
        return new JsonExtenderHandler(placing, binder, new PreemptVerb(preempting), meter, metrics, json);
    }

    @Bean
    PeriodicTask wakeTask(Waker waker) {
        return new PeriodicTask("wake", Duration.ofMillis(100), waker::wake);
    }

    @Bean
    PeriodicTask expireTask(Ledger ledger) {
        return new PeriodicTask("expire", Duration.ofSeconds(1), ledger::expire);
    }

    @Bean
    PeriodicTask evictTask(Evictor evictor) {
        return new PeriodicTask("evict", Duration.ofSeconds(1), evictor::evict);
    }

    @Bean
    PeriodicTask auditTask(Ledger ledger, LedgerEvents events, Cluster cluster, MeterRegistry metrics) {
        var auditor = new Auditor(ledger, events, cluster, metrics);
        return new PeriodicTask("audit", Duration.ofSeconds(5), auditor::audit);
    }

    @Bean
    PeriodicTask reconcileTask(WriteReconciler reconciler) {
        return new PeriodicTask("reconcile", Duration.ofSeconds(2), reconciler::reconcileAll);
    }

    @Bean
    PeriodicTask eventsTask(PendingPods pending, Explainer explainer, Ledger ledger, Cluster cluster) {
        var events = new PendingPodEvents(pending, explainer, ledger, cluster, System::nanoTime);
        return new PeriodicTask("pending-pod-events", Duration.ofSeconds(1), events::tell);
    }

    @Bean(destroyMethod = "close")
    PeriodicTasks periodicTasks(List<PeriodicTask> tasks) {
        return new PeriodicTasks(tasks);
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
