package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.scoring.NodeScoring;
import io.aliquot.scheduler.settings.Settings;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class ExtenderConfiguration {
    @Bean
    FilterAndPrioritize filterAndPrioritize(
            Ledger ledger, NodeScoring scoring, Cluster cluster, PendingPods pending, Settings settings) {
        return new FilterAndPrioritize(
                ledger, scoring, cluster, pending, settings.nodePlacement(), settings.nodesPerFilter());
    }
}
