package io.aliquot.scheduler.pending;

import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerEvents;
import io.aliquot.scheduler.periodic.PeriodicTask;
import java.time.Duration;
import java.util.function.LongSupplier;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class PendingConfiguration {
    @Bean
    PendingPods pendingPods(LongSupplier nanoTime) {
        return new PendingPods(nanoTime);
    }

    @Bean
    Waker waker(
            Ledger ledger,
            LedgerEvents events,
            PendingPods pending,
            ReservationHolders reservations,
            Cluster cluster,
            LongSupplier nanoTime) {
        return new Waker(ledger, events, pending, reservations, cluster, nanoTime);
    }

    @Bean
    PeriodicTask wakeTask(Waker waker) {
        return new PeriodicTask("wake", Duration.ofMillis(100), waker::wake);
    }
}
