package io.aliquot.scheduler.nodeagent;

import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.preemption.Evictions;
import io.aliquot.scheduler.settings.Settings;
import io.micrometer.core.instrument.MeterRegistry;
import java.time.InstantSource;
import java.util.function.LongSupplier;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class NodeAgentConfiguration {
    @Bean
    AgentTls agentTls() {
        return new AgentTls();
    }

    @Bean
    OveruseMonitor overuseMonitor(
            NodeReports reports,
            Ledger ledger,
            Cluster cluster,
            Evictions evictions,
            Settings settings,
            MeterRegistry metrics,
            InstantSource clock,
            LongSupplier nanoTime) {
        return new OveruseMonitor(reports, ledger, cluster, evictions, settings.overuse(), metrics, clock, nanoTime);
    }
}
