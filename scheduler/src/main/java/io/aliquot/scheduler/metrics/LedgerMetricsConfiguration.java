package io.aliquot.scheduler.metrics;

import io.aliquot.scheduler.explain.PendingCauseCounts;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.pending.PendingPods;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class LedgerMetricsConfiguration {
    @Bean
    LedgerMetrics ledgerMetrics(
            Ledger ledger, PendingPods pending, PendingCauseCounts causes, PrometheusMeterRegistry registry) {
        var collector = new LedgerMetrics(ledger, pending, causes::count);
        registry.getPrometheusRegistry().register(collector);
        return collector;
    }
}
