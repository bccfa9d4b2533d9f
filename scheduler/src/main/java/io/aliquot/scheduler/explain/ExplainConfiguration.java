package io.aliquot.scheduler.explain;

import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.scoring.NodeScoring;
import java.util.function.LongSupplier;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class ExplainConfiguration {
    @Bean
    Explainer explainer(Ledger ledger, NodeScoring scoring, Budgets budgets) {
        return new Explainer(ledger, scoring, budgets);
    }

    @Bean
    PendingCauseCounts pendingCauseCounts(
            PendingPods pending, Explainer explainer, Ledger ledger, Cluster cluster, LongSupplier nanoTime) {
        return new PendingCauseCounts(pending, explainer, ledger, cluster, nanoTime);
    }

    @Bean
    PendingPodEvents pendingPodEvents(
            PendingPods pending, Explainer explainer, Ledger ledger, Cluster cluster, LongSupplier nanoTime) {
        return new PendingPodEvents(pending, explainer, ledger, cluster, nanoTime);
    }
}
