package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.preemption.Preemptor;
import io.aliquot.scheduler.recovery.WriteReconciler;
import io.aliquot.scheduler.scoring.NodeScoring;
import io.aliquot.scheduler.settings.Settings;
import io.micrometer.core.instrument.MeterRegistry;
import java.util.function.LongSupplier;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class ExtenderConfiguration {
    @Bean
    FilterAndPrioritize filterAndPrioritize(
            Ledger ledger, NodeScoring scoring, Cluster cluster, PendingPods pending, Settings settings) {
        return new FilterAndPrioritize(
                ledger, scoring, cluster, pending, settings.nodePlacement(), settings.nodesPerFilter());
    }

    @Bean
    Binder binder(
            Ledger ledger, Cluster cluster, PendingPods pending, WriteReconciler reconciler, LongSupplier nanoTime) {
        return new Binder(ledger, cluster, pending, reconciler, nanoTime);
    }

    @Bean
    VerbMetrics verbMetrics(MeterRegistry metrics, LongSupplier nanoTime) {
        return new VerbMetrics(metrics, nanoTime);
    }

    @Bean
    PreemptVerb preemptVerb(Preemptor preemptor) {
        return new PreemptVerb(preemptor);
    }
}
