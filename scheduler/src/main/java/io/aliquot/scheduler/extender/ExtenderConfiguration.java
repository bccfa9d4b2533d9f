package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.explain.Explainer;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.server.Verbs;
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
    LedgerNews ledgerNews() {
        return new LedgerNews();
    }

    @Bean
    Ledger ledger(LedgerNews news) {
        return new Ledger(System::nanoTime, news);
    }

    @Bean
    PendingPods pendingPods() {
        return new PendingPods(System::nanoTime);
    }

    @Bean
    Placing placing(Ledger ledger, Cluster cluster, PendingPods pending, Settings settings) {
        return new Placing(ledger, cluster, pending, settings.nodePlacement(), settings.nodesPerFilter());
    }

    /** Fed by package cluster. */
    @Bean
    Budgets budgets() {
        return new Budgets();
    }

    @Bean
    KeptRooms keptRooms(Ledger ledger, PendingPods pending, Cluster cluster) {
        return new KeptRooms(ledger, pending, cluster, System::nanoTime, InstantSource.system());
    }

    @Bean
    Preempting preempting(Ledger ledger, Cluster cluster, PendingPods pending, Budgets budgets, KeptRooms kept) {
        return new Preempting(ledger, cluster, pending, budgets, kept);
    }

    @Bean
    Waker waker(Ledger ledger, LedgerNews news, PendingPods pending, KeptRooms kept, Cluster cluster) {
        return new Waker(ledger, news, pending, kept, cluster, System::nanoTime);
    }

    @Bean
    Evictor evictor(
            Ledger ledger,
            PendingPods pending,
            Cluster cluster,
            Budgets budgets,
            KeptRooms kept,
            Waker waker,
            MeterRegistry metrics) {
        return new Evictor(ledger, pending, cluster, budgets, kept, waker, metrics, System::nanoTime);
    }

    @Bean
    Outcomes outcomes(Ledger ledger, Cluster cluster) {
        return new Outcomes(ledger, cluster);
    }

    @Bean
    Resizer resizer(Ledger ledger, Cluster cluster, Outcomes outcomes) {
        return new Resizer(ledger, cluster, outcomes);
    }

    @Bean
    Binder binder(Ledger ledger, Cluster cluster, PendingPods pending, Outcomes outcomes) {
        return new Binder(ledger, cluster, pending, outcomes, System::nanoTime);
    }

    @Bean
    VerbMeter verbMeter(MeterRegistry metrics) {
        return new VerbMeter(metrics);
    }

    @Bean
    Verbs verbs(
            Placing placing,
            Binder binder,
            Preempting preempting,
            VerbMeter meter,
            MeterRegistry metrics,
            JsonMapper json) {
        return new JsonVerbs(placing, binder, preempting, meter, metrics, json);
    }

    @Bean(destroyMethod = "close")
    Housekeeping housekeeping(
            Ledger ledger,
            LedgerNews news,
            PendingPods pending,
            Cluster cluster,
            Outcomes outcomes,
            Waker waker,
            Evictor evictor,
            Explainer explainer,
            MeterRegistry metrics) {
        var storyteller = new Storyteller(pending, explainer, ledger, cluster, System::nanoTime);
        return new Housekeeping(
                ledger, waker, evictor, new Auditor(ledger, news, cluster, metrics), outcomes, storyteller);
    }

    @Bean
    LedgerMetrics ledgerMetrics(
            Ledger ledger, PendingPods pending, Cluster cluster, Explainer explainer, PrometheusMeterRegistry metrics) {
        var causes = new WaitingCauses(pending, explainer, ledger, cluster, System::nanoTime);
        var collector = new LedgerMetrics(ledger, pending, causes);
        metrics.getPrometheusRegistry().register(collector);
        return collector;
    }
}
