package io.aliquot.scheduler;

import io.aliquot.api.logging.LogLevelFile;
import io.aliquot.scheduler.apiserver.watch.WatchHealthCheck;
import io.aliquot.scheduler.autoscaler.ScaleDownProtection;
import io.aliquot.scheduler.explain.PendingPodEvents;
import io.aliquot.scheduler.extensionapi.identity.FrontProxyKeeper;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.nodeagent.AcceptedClients;
import io.aliquot.scheduler.nodeagent.AgentUsage;
import io.aliquot.scheduler.nodeagent.ContainerEvents;
import io.aliquot.scheduler.nodeagent.GpuHealthEvents;
import io.aliquot.scheduler.nodeagent.OveruseMonitor;
import io.aliquot.scheduler.nodeagent.RejectedPodEvents;
import io.aliquot.scheduler.pending.Waker;
import io.aliquot.scheduler.periodic.PeriodicTask;
import io.aliquot.scheduler.periodic.PeriodicTasks;
import io.aliquot.scheduler.preemption.Evictor;
import io.aliquot.scheduler.recovery.Auditor;
import io.aliquot.scheduler.recovery.WriteReconciler;
import io.aliquot.scheduler.sizing.ClusterSize;
import java.time.Duration;
import java.util.List;
import java.util.function.LongSupplier;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** All periodic work of the process. */
@Configuration(proxyBeanMethods = false)
class PeriodicConfiguration {
    @Bean
    PeriodicTasks periodicTasks(
            Ledger ledger,
            WriteReconciler reconciler,
            Auditor auditor,
            Waker waker,
            Evictor evictor,
            PendingPodEvents pendingPodEvents,
            GpuHealthEvents gpuHealthEvents,
            AgentUsage agentUsage,
            OveruseMonitor overuseMonitor,
            ContainerEvents containerEvents,
            RejectedPodEvents rejectedPodEvents,
            ScaleDownProtection scaleDownProtection,
            AcceptedClients acceptedClients,
            WatchHealthCheck watches,
            FrontProxyKeeper frontProxy,
            ClusterSize clusterSize,
            LogLevelFile logLevel,
            LongSupplier nanoTime) {
        List<PeriodicTask> tasks = List.of(
                new PeriodicTask("expire", Duration.ofSeconds(1), ledger::expire),
                new PeriodicTask("reconcile", Duration.ofSeconds(2), reconciler::reconcileAll),
                new PeriodicTask("audit", Duration.ofSeconds(5), auditor::audit),
                new PeriodicTask("wake", Duration.ofMillis(100), waker::wake),
                new PeriodicTask("evict", Duration.ofSeconds(1), evictor::evict),
                new PeriodicTask("pending-pod-events", Duration.ofSeconds(1), pendingPodEvents::report),
                new PeriodicTask("gpu-health-events", Duration.ofSeconds(1), gpuHealthEvents::report),
                new PeriodicTask("agent-usage", Duration.ofMillis(100), agentUsage::fetchDue),
                new PeriodicTask("overuse", Duration.ofSeconds(2), overuseMonitor::check),
                new PeriodicTask("container-events", Duration.ofSeconds(5), containerEvents::report),
                new PeriodicTask("rejected-pod-events", Duration.ofSeconds(1), rejectedPodEvents::report),
                new PeriodicTask("scale-down-protection", Duration.ofSeconds(5), scaleDownProtection::update),
                new PeriodicTask("agent-clients", Duration.ofMillis(500), acceptedClients::update),
                new PeriodicTask("watch-health", Duration.ofSeconds(2), watches::check),
                new PeriodicTask("front-proxy", FrontProxyKeeper.PERIOD, frontProxy::refresh),
                new PeriodicTask("cluster-size", Duration.ofSeconds(30), clusterSize::report),
                new PeriodicTask("log-level", LogLevelFile.PERIOD, logLevel::read));
        return new PeriodicTasks(tasks, nanoTime);
    }
}
