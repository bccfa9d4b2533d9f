package io.aliquot.scheduler.nodeagent;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.preemption.Evictions;
import io.aliquot.scheduler.settings.Settings;
import io.micrometer.core.instrument.MeterRegistry;
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
    AgentClient agentClient(AgentTls tls) {
        return new AgentClient(tls, AgentClient.PORT, AgentClient.TIMEOUT);
    }

    @Bean
    AgentUsage agentUsage(
            AgentClient client, NodeReports nodes, Ledger ledger, MeterRegistry metrics, LongSupplier nanoTime) {
        return new AgentUsage(client, nodes::agentCertificate, ledger::setAgentReady, ledger, metrics, nanoTime);
    }

    @Bean
    AcceptedClients acceptedClients(Cluster cluster, AgentUsage usage, LongSupplier nanoTime) {
        return new AcceptedClients(cluster, usage::expectAnswer, nanoTime);
    }

    @Bean
    OveruseMonitor overuseMonitor(
            AgentUsage usage,
            Ledger ledger,
            Cluster cluster,
            Evictions evictions,
            Settings settings,
            MeterRegistry metrics,
            LongSupplier nanoTime) {
        return new OveruseMonitor(
                usage::all,
                ledger,
                cluster,
                evictions,
                settings.overuse(),
                settings.unlimitedContainers(),
                metrics,
                nanoTime);
    }

    @Bean
    ContainerEvents containerEvents(AgentUsage usage, Ledger ledger, Cluster cluster) {
        return new ContainerEvents(usage::all, ledger, cluster);
    }
}
