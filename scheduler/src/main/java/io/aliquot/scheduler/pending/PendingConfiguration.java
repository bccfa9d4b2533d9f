package io.aliquot.scheduler.pending;

import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerEvents;
import io.aliquot.scheduler.periodic.PeriodicTask;
import java.time.Duration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class PendingConfiguration {
    @Bean
    PendingPods pendingPods() {
        return new PendingPods(System::nanoTime);
    }

    @Bean
    Waker waker(
            Ledger ledger, LedgerEvents events, PendingPods pending, ReservationHolders reservations, Cluster cluster) {
        return new Waker(ledger, events, pending, reservations, cluster, System::nanoTime);
    }

    @Bean
    PeriodicTask wakeTask(Waker waker) {
        return new PeriodicTask("wake", Duration.ofMillis(100), waker::wake);
    }
}
