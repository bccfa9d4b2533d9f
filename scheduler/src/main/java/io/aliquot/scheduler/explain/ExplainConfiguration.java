package io.aliquot.scheduler.explain;

import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.scoring.NodeScoring;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class ExplainConfiguration {
    @Bean
    Explainer explainer(Ledger ledger, NodeScoring scoring, Budgets budgets) {
        return new Explainer(ledger, scoring, budgets);
    }
}
