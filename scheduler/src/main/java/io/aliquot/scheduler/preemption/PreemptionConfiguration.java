package io.aliquot.scheduler.preemption;

import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.pending.Waker;
import io.micrometer.core.instrument.MeterRegistry;
import java.time.Clock;
import java.util.function.LongSupplier;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class PreemptionConfiguration {
    /** The Kubernetes adapter updates it. */
    @Bean
    Budgets budgets() {
        return new Budgets();
    }

    @Bean
    PreemptionReservations preemptionReservations(
            Ledger ledger, PendingPods pending, Cluster cluster, LongSupplier nanoTime, Clock clock) {
        return new PreemptionReservations(ledger, pending, cluster, nanoTime, clock);
    }

    @Bean
    Preemptor preemptor(
            Ledger ledger, Cluster cluster, PendingPods pending, Budgets budgets, PreemptionReservations reservations) {
        return new Preemptor(ledger, cluster, pending, budgets, reservations);
    }

    @Bean
    Evictor evictor(
            Ledger ledger,
            PendingPods pending,
            Cluster cluster,
            Budgets budgets,
            PreemptionReservations reservations,
            Waker waker,
            MeterRegistry metrics,
            LongSupplier nanoTime) {
        return new Evictor(ledger, pending, cluster, budgets, reservations, waker, metrics, nanoTime);
    }
}
