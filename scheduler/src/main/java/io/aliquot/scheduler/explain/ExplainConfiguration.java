package io.aliquot.scheduler.explain;

import io.aliquot.scheduler.ledger.Ledger;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class ExplainConfiguration {
    @Bean
    Explainer explainer(Ledger ledger) {
        return new Explainer(ledger);
    }
}
