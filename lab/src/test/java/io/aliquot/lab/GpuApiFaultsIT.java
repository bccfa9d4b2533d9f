package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watch;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The API group gpu.aliquot.io while replicas are replaced or killed. In the long tier, {@code ALIQUOT_LONG=1}. */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class GpuApiFaultsIT {
    /** While no replica answers, the namespace controller cannot know what it has to delete. */
    private static final Duration LONGEST_DELAY = Duration.ofSeconds(15);

    private static final Duration RESTART_TIMEOUT = Duration.ofMinutes(4);
    private static final int MEMORY = 3000;
    /** A report older than a minute does not count; agents are asked every 15 s. */
    private static final Duration USAGE_EXPIRES = Duration.ofSeconds(90);

    private static final int MINUTES_AWAY = Integer.getInteger("aliquot.minutesAway", 10);

    enum Fault {
        ROLLING_UPDATE {
            @Override
            void inject(Lab lab, SchedulerReplicas replicas) {
                lab.kubectl("-n", Lab.NAMESPACE, "rollout", "restart", "deployment/aliquot-scheduler")
                        .expectSuccess();
                lab.kubectl("-n", Lab.NAMESPACE, "rollout", "status", "deployment/aliquot-scheduler", "--timeout=170s")
                        .expectSuccess();
            }
        },
        LEADER_KILLED {
            @Override
            void inject(Lab lab, SchedulerReplicas replicas) {
                Pod leader = replicas.get(replicas.leader());
                replicas.signal(leader, SchedulerReplicas.KUBE_SCHEDULER, "SIGKILL");
                replicas.signal(leader, SchedulerReplicas.EXTENDER, "SIGKILL");
                awaitTrue(
                        "the killed replica is not ready",
                        EVENTUALLY,
                        () -> replicas.all().stream().anyMatch(pod -> !TestNamespace.isReady(pod)));
            }
        };

        /** Returns when the fault has had its effect, at most before the replicas are ready again. */
        abstract void inject(Lab lab, SchedulerReplicas replicas);
    }

    @ParameterizedTest
    @EnumSource
    void aDeletedNamespaceIsGoneWithAtMost15SecondsDelay(Fault fault, Lab lab) throws InterruptedException {
        var replicas = new SchedulerReplicas(lab);
        replicas.awaitReady(RESTART_TIMEOUT);
        List<Long> before = deletions(lab, fault + "-before", count(5));
        Thread injection = inject(fault, lab, replicas);

        List<Long> during = deletions(lab, fault + "-during", injection::isAlive);

        injection.join();
        long usual = before.get(before.size() / 2);
        System.out.printf(
                "%s: a namespace is gone after %d ms, at most %d; during the fault after %d, at most %d, of %d%n",
                fault, usual, before.getLast(), during.get(during.size() / 2), during.getLast(), during.size());
        assertThat(during.getLast() - usual).isLessThan(LONGEST_DELAY.toMillis());
    }

    /** Starts a thread that ends when the fault is over and the replicas are ready again. */
    private static Thread inject(Fault fault, Lab lab, SchedulerReplicas replicas) {
        return Thread.ofPlatform().start(() -> {
            fault.inject(lab, replicas);
            replicas.awaitReady(RESTART_TIMEOUT);
        });
    }

    private static BooleanSupplier count(int count) {
        var left = new AtomicInteger(count);
        return () -> left.getAndDecrement() > 0;
    }

    private static void createNamespace(Lab lab, String name) {
        lab.client()
                .resource(new NamespaceBuilder()
                        .withNewMetadata()
                        .withName(name)
                        .endMetadata()
                        .build())
                .create();
    }

    /** Begins a deletion each second while a condition holds; returns how many milliseconds each took, in order. */
    private static List<Long> deletions(Lab lab, String name, BooleanSupplier more) throws InterruptedException {
        var times = Collections.synchronizedList(new ArrayList<Long>());
        var threads = new ArrayList<Thread>();
        while (more.getAsBoolean()) {
            String namespace = (name + "-" + Long.toString(System.nanoTime(), 36))
                    .toLowerCase(java.util.Locale.ROOT)
                    .replace('_', '-');
            createNamespace(lab, namespace);
            threads.add(Thread.ofPlatform().start(() -> {
                long begin = System.nanoTime();
                lab.client().namespaces().withName(namespace).delete();
                awaitTrue(
                        namespace + " is gone",
                        RESTART_TIMEOUT,
                        () -> lab.client().namespaces().withName(namespace).get() == null);
                times.add(TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin));
            }));
            TimeUnit.SECONDS.sleep(1);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        assertThat(times).as("deletions").hasSameSizeAs(threads);
        return times.stream().sorted().toList();
    }

    /** What a client knows of its patch, each of another amount of memory. */
    private record Answer(int memory, int code, String message, long millis) {
        boolean isDone() {
            return code == 200;
        }

        boolean saysThatNothingChanged() {
            return message.contains("nothing was changed");
        }
    }

    @ParameterizedTest
    @EnumSource
    void eachPatchHasAnOutcomeThatIsTrue(Fault fault, Lab lab, TestNamespace namespace) throws InterruptedException {
        var replicas = new SchedulerReplicas(lab);
        replicas.awaitReady(RESTART_TIMEOUT);
        namespace.run(Pods.withGpuMemory(lab, "resized", MEMORY));
        var answers = new ArrayList<Answer>();
        Set<Integer> seen;
        try (var held = new HeldMemory(namespace, "resized")) {
            for (int i = 0; i < 5; i++) {
                answers.add(patch(lab.client(), namespace, MEMORY + answers.size()));
            }
            Thread injection = inject(fault, lab, replicas);
            while (injection.isAlive() || !answers.getLast().isDone()) {
                answers.add(patch(lab.client(), namespace, MEMORY + answers.size()));
            }
            injection.join();
            int last = answers.getLast().memory();
            awaitTrue("the last patch is seen", TestNamespace.VOLUME_UPDATED, () -> held.seen.contains(last));
            seen = Set.copyOf(held.seen);
        }

        System.out.printf(
                "%s: %d patches, the longest took %d ms; answers: %s%n",
                fault,
                answers.size(),
                answers.stream().mapToLong(Answer::millis).max().getAsLong(),
                answers.stream()
                        .collect(Collectors.groupingBy(
                                answer -> answer.code() + " " + answer.message(), Collectors.counting())));
        assertThat(answers).allSatisfy(answer -> {
            assertThat(answer.millis()).isLessThan(30_000);
            if (answer.isDone()) {
                assertThat(seen).as("done").contains(answer.memory());
            } else {
                assertThat(answer.code()).isIn(500, 502, 503, 504);
            }
            if (answer.saysThatNothingChanged()) {
                assertThat(seen).as("nothing was changed").doesNotContain(answer.memory());
            }
        });
        assertThat(Allocations.of(namespace.get("resized"), Pods.MAIN)
                        .getFirst()
                        .memoryMiB())
                .as("the last patch was done")
                .isEqualTo(answers.getLast().memory());
    }

    private static Answer patch(KubernetesClient client, TestNamespace namespace, int memory) {
        long begin = System.nanoTime();
        int code = 200;
        String message = "";
        try {
            client.genericKubernetesResources("gpu.aliquot.io/v1alpha1", "GpuShare")
                    .inNamespace(namespace.name())
                    .withName("resized")
                    .patch(
                            PatchContext.of(PatchType.JSON_MERGE),
                            "{\"spec\":{\"containers\":[{\"name\":\"main\",\"memoryMiB\":" + memory + "}]}}");
        } catch (KubernetesClientException e) {
            code = e.getCode();
            message = e.getStatus() == null
                    ? String.valueOf(e.getMessage())
                    : String.valueOf(e.getStatus().getMessage());
        }
        return new Answer(memory, code, message, TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin));
    }

    /** Each amount of memory that a pod has held. */
    private static final class HeldMemory implements Watcher<Pod>, AutoCloseable {
        private final Set<Integer> seen = ConcurrentHashMap.newKeySet();
        private final Watch watch;

        HeldMemory(TestNamespace namespace, String pod) {
            watch = namespace
                    .client()
                    .pods()
                    .inNamespace(namespace.name())
                    .withName(pod)
                    .watch(this);
        }

        @Override
        public void eventReceived(Action action, Pod pod) {
            Allocations.of(pod, Pods.MAIN).forEach(vgpu -> seen.add(vgpu.memoryMiB()));
        }

        @Override
        public void onClose(WatcherException cause) {
            // The test then fails, since it does not see the last patch.
        }

        @Override
        public void close() {
            watch.close();
        }
    }

    /**
     * The namespace controller deletes nothing while the discovery of any group fails, and the API server notices within a
     * minute that it fails (kube-aggregator, handler_discovery.go).
     */
    @Test
    void namespacesAreDeletedWhileNoSchedulerIsThere(Lab lab) throws InterruptedException {
        String namespace = "away-" + Long.toString(System.nanoTime(), 36);
        createNamespace(lab, namespace);
        var pods = lab.client().pods().inNamespace(namespace);
        pods.resource(Pods.withGpuMemory(lab, "holder", MEMORY)).create();
        awaitTrue(
                "the pod runs",
                EVENTUALLY,
                () -> TestNamespace.isRunning(pods.withName("holder").get()));
        var replicas = new SchedulerReplicas(lab);
        int count = replicas.all().size();
        var deployment =
                lab.client().apps().deployments().inNamespace(Lab.NAMESPACE).withName("aliquot-scheduler");
        deployment.scale(0);
        try {
            awaitTrue("no replica is left", EVENTUALLY, () -> replicas.all().isEmpty());
            long gone = System.nanoTime();
            for (int minute = 1; minute <= MINUTES_AWAY; minute++) {
                while (System.nanoTime() - gone < TimeUnit.MINUTES.toNanos(minute)) {
                    TimeUnit.SECONDS.sleep(1);
                }
                Lab.Output resources = lab.kubectl("api-resources");
                assertThat(resources.expectSuccess()).contains("gpushares");
                assertThat(resources.err()).isEmpty();
                assertThat(lab.kubectl("get", "gpunodes").err()).contains("no replica of aliquot-scheduler is ready");
                long end = System.nanoTime();
                if (minute == 1) {
                    lab.client().namespaces().withName(namespace).delete();
                    awaitTrue(
                            "the pod has ended",
                            EVENTUALLY,
                            () -> pods.list().getItems().isEmpty());
                    end = System.nanoTime();
                    awaitTrue(
                            "the namespace is gone",
                            LONGEST_DELAY,
                            () -> lab.client().namespaces().withName(namespace).get() == null);
                } else {
                    deletions(lab, "away-" + minute, count(1));
                }
                long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - end);
                System.out.printf("%d min without a scheduler: a namespace is gone after %d ms%n", minute, millis);
                assertThat(millis).isLessThan(10_000);
            }
        } finally {
            deployment.scale(count);
            replicas.awaitReady(RESTART_TIMEOUT);
        }
        awaitTrue(
                "the API answers again",
                EVENTUALLY,
                () -> lab.kubectl("get", "gpunodes").exit() == 0);
    }

    /** Old and new replicas side by side: a client that repeats what is answered with 503, as client-go does, reads on. */
    @Test
    void listsGoOnDuringARollingUpdate(Lab lab, TestNamespace namespace) throws InterruptedException {
        var replicas = new SchedulerReplicas(lab);
        replicas.awaitReady(RESTART_TIMEOUT);
        namespace.run(Pods.withGpuMemory(lab, "stays", MEMORY));
        Thread injection = inject(Fault.ROLLING_UPDATE, lab, replicas);
        int lists = 0;
        long longestGap = 0;
        long last = System.nanoTime();
        var failures = new ArrayList<String>();
        while (injection.isAlive()) {
            try {
                List<GenericKubernetesResource> shares = lab.client()
                        .genericKubernetesResources("gpu.aliquot.io/v1alpha1", "GpuShare")
                        .inNamespace(namespace.name())
                        .list()
                        .getItems();
                assertThat(shares)
                        .extracting(share -> share.getMetadata().getName())
                        .containsExactly("stays");
                lists++;
                longestGap = Math.max(longestGap, System.nanoTime() - last);
                last = System.nanoTime();
            } catch (KubernetesClientException e) {
                failures.add(e.getCode() + " " + e.getMessage());
            }
            TimeUnit.MILLISECONDS.sleep(50);
        }
        injection.join();
        System.out.printf(
                "ROLLING_UPDATE: %d lists, %d failed, longest time without one %d ms; failures: %s%n",
                lists, failures.size(), TimeUnit.NANOSECONDS.toMillis(longestGap), Set.copyOf(failures));
        assertThat(failures).allMatch(failure -> failure.startsWith("503 "));
        assertThat(TimeUnit.NANOSECONDS.toSeconds(longestGap)).isLessThan(LONGEST_DELAY.toSeconds());
    }

    @Test
    void anAgentThatDoesNotAnswerCostsOnlyTheUsageAndItsSuccessorIsTrusted(Lab lab, TestNamespace namespace) {
        Pod pod = Pods.withGpuMemory(lab, "uses", MEMORY);
        pod.getSpec().getContainers().getFirst().setCommand(List.of("vgpu-sample", "alloc", "2000", "hold"));
        String node = namespace.run(pod).getSpec().getNodeName();
        awaitTrue("its usage", EVENTUALLY, () -> usage(lab, namespace).contains("2256"));
        String agent = TestNamespace.containerStatus(lab.agentOf(node), "device-plugin")
                .getContainerID();
        lab.kill(node + "/kubelet"); // which would replace the agent
        try {
            lab.signal(node, agent, "SIGSTOP");
            awaitTrue("no usage", USAGE_EXPIRES, () -> usage(lab, namespace).isEmpty());

            long begin = System.nanoTime();
            for (int i = 0; i < 20; i++) {
                usage(lab, namespace);
            }
            long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin) / 20;
            System.out.println("a GET without the agent: " + millis + " ms");
            assertThat(millis).isLessThan(500);
        } finally {
            lab.signal(node, agent, "SIGKILL");
            lab.start(node + "/kubelet");
        }
        awaitTrue("its usage again", EVENTUALLY, () -> usage(lab, namespace).contains("2256"));
    }

    /** The usage of a gpushare; empty if it has none. */
    private static String usage(Lab lab, TestNamespace namespace) {
        GenericKubernetesResource share = lab.client()
                .genericKubernetesResources("gpu.aliquot.io/v1alpha1", "GpuShare")
                .inNamespace(namespace.name())
                .withName("uses")
                .get();
        Object usage = share.get("status", "usage");
        return usage == null ? "" : usage.toString();
    }
}
