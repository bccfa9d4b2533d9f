package io.aliquot.scheduler.nodeagent;

import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.preemption.Evictions;
import io.aliquot.scheduler.settings.Settings;
import io.micrometer.core.instrument.MeterRegistry;
import java.time.Clock;
import java.util.Set;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class NodeAgentConfiguration {
    private static final Logger LOG = LoggerFactory.getLogger(NodeAgentConfiguration.class);

    @Bean
    AgentTls agentTls() {
        return new AgentTls();
    }

    @Bean
    AgentClient agentClient(AgentTls tls, Clock clock) {
        return new AgentClient(tls, clock, AgentClient.PORT, AgentClient.TIMEOUT);
    }

    @Bean
    AgentUsage agentUsage(AgentClient client, Ledger ledger, MeterRegistry metrics, LongSupplier nanoTime) {
        return new AgentUsage(client, ledger::setAgentReady, deletedPods(ledger), metrics, nanoTime);
    }

    static AgentUsage.PodListener deletedPods(Ledger ledger) {
        return new AgentUsage.PodListener() {
            @Override
            public boolean awaitsPods(String node) {
                return ledger.awaitsPods(node);
            }

            @Override
            public void observePods(String node, Set<String> uids, long askedAt) {
                ledger.observePods(node, uids, askedAt)
                        .forEach(pod -> LOG.info("no longer on node {}, its vGPUs are free: {}", node, pod));
            }
        };
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
    ContainerEvents containerEvents(AgentUsage usage, Ledger ledger, Cluster cluster, LongSupplier nanoTime) {
        return new ContainerEvents(usage::all, ledger, cluster, nanoTime);
    }
}
