package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.foreign.ForeignResources;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/** Admission while one or both replicas of the scheduler cannot serve it. */
@ExtendWith(LabExtension.class)
@Isolated
class AdmissionFaultsIT {
    private static final Duration RESTART_TIMEOUT = Duration.ofMinutes(4);
    /** The time in which the kubelet notices that a container ended and kube-proxy stops sending requests to it. */
    private static final Duration NOTICE_TIMEOUT = Duration.ofSeconds(5);

    /**
     * The grace period of a container that failed its liveness probe: it is ready again until the kubelet ends it. The
     * chart sets one second, the kubelet's minimum is two.
     */
    private static final Duration GRACE_PERIOD = Duration.ofSeconds(5);

    private static final Duration WEBHOOK_TIMEOUT = Duration.ofSeconds(1);
    /** For the API server's own work on a busy machine. */
    private static final Duration SLACK = Duration.ofSeconds(1);

    /** A dry-run request that creates a pod. */
    private record Attempt(long at, Duration took, Optional<String> refusal) {}

    @Test
    @LongTier.Only
    void whileOneReplicaIsDownTheOtherAdmitsPods(Lab lab, TestNamespace namespace) throws InterruptedException {
        var replicas = new SchedulerReplicas(lab);
        replicas.awaitReady(RESTART_TIMEOUT);
        long killed = System.nanoTime();
        replicas.signal(replicas.all().get(0), SchedulerReplicas.EXTENDER, "SIGKILL");

        List<Attempt> attempts = attempts(namespace, Pods.withGpuMemory(lab, "gpu", 1000), Duration.ofSeconds(10));

        assertThat(attempts)
                .filteredOn(attempt -> attempt.at() - killed > NOTICE_TIMEOUT.toNanos())
                .isNotEmpty()
                .allMatch(attempt -> attempt.refusal().isEmpty());
        replicas.awaitReady(RESTART_TIMEOUT);
    }

    @Test
    void deletingAReplicaCausesNoRefusal(Lab lab, TestNamespace namespace) throws InterruptedException {
        var replicas = new SchedulerReplicas(lab);
        replicas.awaitReady(RESTART_TIMEOUT);
        lab.client().resource(replicas.get(replicas.leader())).delete();

        List<Attempt> attempts = attempts(namespace, Pods.withGpuMemory(lab, "gpu", 1000), Duration.ofSeconds(12));

        assertThat(attempts)
                .hasSizeGreaterThan(20)
                .allMatch(attempt -> attempt.refusal().isEmpty());
        replicas.awaitReady(RESTART_TIMEOUT);
    }

    @Test
    @LongTier.Only
    void whileNoReplicaAnswersAliquotsPodsAreRefusedAndOthersDelayedByASecondAtMost(Lab lab, TestNamespace namespace)
            throws InterruptedException {
        var replicas = new SchedulerReplicas(lab);
        replicas.awaitReady(RESTART_TIMEOUT);
        List<Pod> stopped = replicas.all();
        stopped.forEach(replica -> replicas.signal(replica, SchedulerReplicas.EXTENDER, "SIGSTOP"));
        // The API server waits 10 s for the webhook, as long as clients wait for the API server by default.
        Config config = new ConfigBuilder(lab.client().getConfiguration())
                .withRequestTimeout((int) EVENTUALLY.toMillis())
                .build();
        try (KubernetesClient client =
                new KubernetesClientBuilder().withConfig(config).build()) {
            Pod ofAnotherPlugin = Pods.withLimits(lab, "foreign", Map.of(ForeignResources.NVIDIA_GPU, "1"));
            var withGpu = CompletableFuture.supplyAsync(
                    () -> attempt(client, namespace, Pods.withGpuMemory(lab, "gpu", 1000)));
            var labeled =
                    CompletableFuture.supplyAsync(() -> attempt(client, namespace, Pods.labeled(ofAnotherPlugin)));
            Attempt withoutGpu = attempt(namespace, Pods.withoutGpu(lab, "no-gpu"));
            Attempt foreign = attempt(namespace, ofAnotherPlugin);

            assertThat(withoutGpu.refusal()).isEmpty();
            assertThat(withoutGpu.took()).isLessThan(WEBHOOK_TIMEOUT.plus(SLACK));
            assertThat(withGpu.join().refusal()).get().asString().contains("gpu.aliquot.io");
            assertThat(foreign.refusal()).isEmpty();
            assertThat(foreign.took()).isLessThan(SLACK);
            assertThat(labeled.join().refusal()).get().asString().contains("gpu.aliquot.io");
        } finally {
            stopped.forEach(replica -> replicas.signal(replica, SchedulerReplicas.EXTENDER, "SIGCONT"));
        }
        TimeUnit.MILLISECONDS.sleep(GRACE_PERIOD.toMillis());
        TestNamespace.awaitTrue(
                "GPU pods are admitted again",
                EVENTUALLY,
                () -> attempt(namespace, Pods.withGpuMemory(lab, "gpu", 1000))
                        .refusal()
                        .isEmpty());
        replicas.awaitReady(RESTART_TIMEOUT);
    }

    private static List<Attempt> attempts(TestNamespace namespace, Pod pod, Duration during)
            throws InterruptedException {
        var attempts = new ArrayList<Attempt>();
        long end = System.nanoTime() + during.toNanos();
        while (System.nanoTime() < end) {
            attempts.add(attempt(namespace, pod));
            TimeUnit.MILLISECONDS.sleep(100);
        }
        return attempts;
    }

    private static Attempt attempt(TestNamespace namespace, Pod pod) {
        return attempt(namespace.client(), namespace, pod);
    }

    private static Attempt attempt(KubernetesClient client, TestNamespace namespace, Pod pod) {
        long begin = System.nanoTime();
        Optional<String> refusal = Optional.empty();
        try {
            client.resource(pod).inNamespace(namespace.name()).dryRun().create();
        } catch (KubernetesClientException e) {
            refusal = Optional.of(String.valueOf(e.getMessage()));
        }
        return new Attempt(begin, Duration.ofNanos(System.nanoTime() - begin), refusal);
    }
}
