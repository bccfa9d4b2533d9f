package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Admission while one replica of the scheduler, or both, can't serve it. */
@ExtendWith(LabExtension.class)
class AdmissionFaultsIT {
    private static final Duration RESTARTED = Duration.ofMinutes(4);
    /** Until the kubelet has seen that a container ended, and word of it has reached every node's rules. */
    private static final Duration NOTICED = Duration.ofSeconds(5);

    /** Whom the kubelet has found hung is ready again until its end: a second's grace, at least two (kubelet). */
    private static final Duration ENDED = Duration.ofSeconds(5);

    private static final Duration SECOND = Duration.ofSeconds(1);
    /** For the API server's own work on a busy machine. */
    private static final Duration SLACK = Duration.ofSeconds(1);

    /** An attempt to create a pod, without effect. */
    private record Attempt(long at, Duration took, Optional<String> refusal) {}

    @Test
    void withOneReplicaKilledTheOtherAdmits(Lab lab, TestNamespace space) throws InterruptedException {
        var replicas = new SchedulerReplicas(lab);
        replicas.awaitReady(RESTARTED);
        long killed = System.nanoTime();
        replicas.signal(replicas.all().get(0), SchedulerReplicas.EXTENDER, "SIGKILL");

        List<Attempt> attempts = attempts(space, Pods.memory(lab, "asks", 1000), Duration.ofSeconds(10));

        assertThat(attempts)
                .filteredOn(attempt -> attempt.at() - killed > NOTICED.toNanos())
                .isNotEmpty()
                .allMatch(attempt -> attempt.refusal().isEmpty());
        replicas.awaitReady(RESTARTED);
    }

    @Test
    void aReplicaThatIsDeletedCostsNoPodItsAdmission(Lab lab, TestNamespace space) throws InterruptedException {
        var replicas = new SchedulerReplicas(lab);
        replicas.awaitReady(RESTARTED);
        lab.client().resource(replicas.get(replicas.leader())).delete();

        List<Attempt> attempts = attempts(space, Pods.memory(lab, "asks", 1000), Duration.ofSeconds(12));

        assertThat(attempts)
                .hasSizeGreaterThan(20)
                .allMatch(attempt -> attempt.refusal().isEmpty());
        replicas.awaitReady(RESTARTED);
    }

    @Test
    void whileNobodyAnswersPodsThatAskAreRefusedAndOthersWaitASecond(Lab lab, TestNamespace space) throws InterruptedException {
        var replicas = new SchedulerReplicas(lab);
        replicas.awaitReady(RESTARTED);
        List<Pod> stopped = replicas.all();
        stopped.forEach(replica -> replicas.signal(replica, SchedulerReplicas.EXTENDER, "SIGSTOP"));
        // The API server gives the webhook 10 s, which is how long clients wait for the API server, too.
        Config patience = new ConfigBuilder(lab.client().getConfiguration())
                .withRequestTimeout((int) EVENTUALLY.toMillis())
                .build();
        try (KubernetesClient patient =
                new KubernetesClientBuilder().withConfig(patience).build()) {
            Attempt plain = attempt(space, Pods.plain(lab, "asks-not"));
            Attempt asking = attempt(patient, space, Pods.memory(lab, "asks", 1000));

            assertThat(plain.refusal()).isEmpty();
            assertThat(plain.took()).isLessThan(SECOND.plus(SLACK));
            assertThat(asking.refusal()).get().asString().contains("gpu.aliquot.io");
        } finally {
            stopped.forEach(replica -> replicas.signal(replica, SchedulerReplicas.EXTENDER, "SIGCONT"));
        }
        TimeUnit.MILLISECONDS.sleep(ENDED.toMillis());
        TestNamespace.awaitTrue(
                "pods that ask are admitted again",
                EVENTUALLY,
                () -> attempt(space, Pods.memory(lab, "asks", 1000)).refusal().isEmpty());
        replicas.awaitReady(RESTARTED);
    }

    private static List<Attempt> attempts(TestNamespace space, Pod pod, Duration during) throws InterruptedException {
        var attempts = new ArrayList<Attempt>();
        long end = System.nanoTime() + during.toNanos();
        while (System.nanoTime() < end) {
            attempts.add(attempt(space, pod));
            TimeUnit.MILLISECONDS.sleep(100);
        }
        return attempts;
    }

    private static Attempt attempt(TestNamespace space, Pod pod) {
        return attempt(space.client(), space, pod);
    }

    private static Attempt attempt(KubernetesClient client, TestNamespace space, Pod pod) {
        long begin = System.nanoTime();
        Optional<String> refusal = Optional.empty();
        try {
            client.resource(pod).inNamespace(space.name()).dryRun().create();
        } catch (KubernetesClientException e) {
            refusal = Optional.of(String.valueOf(e.getMessage()));
        }
        return new Attempt(begin, Duration.ofNanos(System.nanoTime() - begin), refusal);
    }
}
