package io.aliquot.scheduler.recovery;

import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerEvents;
import io.aliquot.scheduler.periodic.PeriodicTask;
import io.micrometer.core.instrument.MeterRegistry;
import java.time.Duration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class RecoveryConfiguration {
    @Bean
    WriteReconciler writeReconciler(Ledger ledger, Cluster cluster) {
        return new WriteReconciler(ledger, cluster);
    }

    @Bean
    PeriodicTask reconcileTask(WriteReconciler reconciler) {
        return new PeriodicTask("reconcile", Duration.ofSeconds(2), reconciler::reconcileAll);
    }

    @Bean
    Resizer resizer(Ledger ledger, Cluster cluster, WriteReconciler reconciler) {
        return new Resizer(ledger, cluster, reconciler);
    }

    @Bean
    PeriodicTask auditTask(Ledger ledger, LedgerEvents events, Cluster cluster, MeterRegistry metrics) {
        var auditor = new Auditor(ledger, events, cluster, metrics);
        return new PeriodicTask("audit", Duration.ofSeconds(5), auditor::audit);
    }
}
