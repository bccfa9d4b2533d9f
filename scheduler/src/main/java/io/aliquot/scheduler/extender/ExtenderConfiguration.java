package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.settings.Settings;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

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

    @Bean
    Binder binder(Ledger ledger, Cluster cluster, PendingPods pending) {
        return new Binder(ledger, cluster, pending);
    }

    @Bean
    VerbMeter verbMeter(MeterRegistry metrics) {
        return new VerbMeter(metrics);
    }

    @Bean(destroyMethod = "close")
    Housekeeping housekeeping(
            Ledger ledger,
            LedgerNews news,
            PendingPods pending,
            Cluster cluster,
            Binder binder,
            MeterRegistry metrics) {
        Gauge.builder("aliquot.pods.waiting", pending, pods -> pods.waiting().size())
                .description("Pods that fit on no node")
                .register(metrics);
        Gauge.builder("aliquot.ledger.reservations", ledger, Ledger::reservations)
                .description("Claims that the cluster has not confirmed")
                .register(metrics);
        return new Housekeeping(
                ledger,
                new Waker(ledger, news, pending, cluster, System::nanoTime),
                new Auditor(news, cluster, metrics),
                binder,
                new LedgerMetrics(ledger, metrics));
    }
}
