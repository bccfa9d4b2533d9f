package io.aliquot.scheduler;

import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerEvents;
import io.aliquot.scheduler.scoring.NodeScoring;
import io.aliquot.scheduler.scoring.fragmentation.Fragmentation;
import java.util.function.LongSupplier;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** The ledger and the scoring of its nodes, whose packages know no Spring. */
@Configuration(proxyBeanMethods = false)
public class LedgerConfiguration {
    @Bean
    LedgerEvents ledgerEvents() {
        return new LedgerEvents();
    }

    @Bean
    Ledger ledger(LedgerEvents events, LongSupplier nanoTime) {
        return new Ledger(nanoTime, events);
    }

    @Bean
    NodeScoring nodeScoring(Ledger ledger) {
        return new NodeScoring(ledger, new Fragmentation());
    }
}
