package io.aliquot.scheduler;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.pods.Vgpus;
import io.aliquot.scheduler.QuotaHistory.Amount;
import io.aliquot.scheduler.ReplicaProcess.Part;
import io.aliquot.testing.Await;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.ContainerBuilder;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.api.model.ResourceQuota;
import io.fabric8.kubernetes.api.model.ResourceQuotaBuilder;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.io.TempDir;

/**
 * Quotas while both replicas are killed, ended and paused: real API server, real kube-schedulers, the extender as a process,
 * the chart's roles and policies, nodes without a kubelet. The pods are as the webhook makes them in what the scheduler
 * reads. {@code FaultModelTest} has far more histories against a simulated API server.
 */
@EnabledIfEnvironmentVariable(named = "ALIQUOT_LONG", matches = "1")
@Tag("long")
@SuppressWarnings("NullAway.Init") // the test sets the cluster
class ReplicasIT {
    private static final int PODS = Integer.getInteger("aliquot.pods", 1000);
    private static final int NAMESPACES = 20;
    private static final int FAULTS = 10;
    /** What a namespace gets on average. */
    private static final int QUOTA_MIB = 45_000;

    /** A quota of a namespace in the version that the API server gave it. */
    private record Written(long version, String namespace, Amount hard) {}

    private final long seed = Long.getLong("aliquot.seed", System.nanoTime());
    private final Random random = new Random(seed);
    private final Map<String, Integer> done = new TreeMap<>();
    private final QuotaHistory history = new QuotaHistory();
    /** Pods that have not ended, by their UIDs, as the watch last had them. */
    private final Map<String, Pod> present = new ConcurrentHashMap<>();

    private final Map<String, String> refusals = new ConcurrentHashMap<>();
    private final Map<String, Amount> quotas = new TreeMap<>();
    /** Quotas that a replica may not know yet. */
    private final List<Written> written = new ArrayList<>();

    private ReplicatedCluster cluster;

    @Test
    void theLedgersSumsEqualWhatPodsHoldAndNoQuotaIsExceeded(@TempDir Path folder) throws Exception {
        System.out.println("seed " + seed);
        try (var started = new ReplicatedCluster(folder)) {
            cluster = started;
            cluster.start();
            run();
        }
    }

    private void run() throws Exception {
        for (int i = 0; i < NAMESPACES; i++) {
            String namespace = "team-" + i;
            cluster.client
                    .namespaces()
                    .resource(new NamespaceBuilder()
                            .withNewMetadata()
                            .withName(namespace)
                            .addToLabels("aliquot.io/webhook", "ignore")
                            .endMetadata()
                            .build())
                    .create();
            quotas.put(namespace, Amount.UNLIMITED);
        }
        try (var watch = cluster.client.pods().inAnyNamespace().watch(new Watcher<Pod>() {
            @Override
            public void eventReceived(Action action, Pod pod) {
                onPod(action, pod);
            }

            @Override
            public void onClose(WatcherException cause) {
                System.out.println("the test's watch ended: " + cause);
            }
        })) {
            assertThat(watch).isNotNull();
            cluster.awaitLeader();
            for (String namespace : quotas.keySet()) {
                changeQuota(namespace);
            }
            awaitEqualSums();
            int created = 0;
            int faults = 0;
            while (created < PODS) {
                cluster.replicas.forEach(ReplicaProcess::start);
                created += step(created);
                noteKnownQuotas();
                if (created * FAULTS >= (faults + 1) * PODS) {
                    fault(faults++);
                    cluster.awaitLeader();
                    awaitEqualSums();
                }
            }
            // Where there is room, every pod is placed, although all retries that a fault has ended were forgotten.
            for (String namespace : quotas.keySet()) {
                write(namespace, Amount.UNLIMITED);
            }
            Await.await(this::whyPending, Duration.ofMinutes(2), () -> pending().isEmpty());
            awaitEqualSums();
        } catch (Exception | AssertionError e) {
            for (ReplicaProcess replica : cluster.replicas) {
                System.out.println(replica.logs());
            }
            throw e;
        }
        QuotaHistory.Result result = history.check();
        checkGpus();

        System.out.printf(
                "seed %d: %d pods in %d namespaces, %d bound, %d refused for a quota at some time, %d within a former quota; %s%n",
                seed, PODS, NAMESPACES, result.bound(), refusals.size(), result.withinFormer(), done);
        assertThat(refusals).hasSizeGreaterThan(PODS / 50);
        assertThat(done).containsKeys("resize 200", "resize 422");
        assertThat(result.bound()).isGreaterThan(PODS / 2);
    }

    private void onPod(Watcher.Action action, Pod pod) {
        String uid = pod.getMetadata().getUid();
        boolean gone = action == Watcher.Action.DELETED
                || List.of("Succeeded", "Failed")
                        .contains(String.valueOf(pod.getStatus().getPhase()));
        Amount amount = gone || pod.getSpec().getNodeName() == null ? Amount.NONE : allocation(pod);
        history.holds(version(pod.getMetadata().getResourceVersion()), namespace(pod), uid, amount);
        if (gone) {
            present.remove(uid);
        } else {
            present.put(uid, pod);
        }
        pod.getStatus().getConditions().stream()
                .map(condition -> String.valueOf(condition.getMessage()))
                .filter(message -> message.contains("ResourceQuota " + ReplicatedCluster.QUOTA))
                .forEach(message -> refusals.put(uid, message));
    }

    private static long version(String text) {
        return Long.parseLong(text);
    }

    private static String namespace(Pod pod) {
        return pod.getMetadata().getNamespace();
    }

    /** By Kubernetes' rule: what the app containers hold together, or an init container if that is more. */
    private static Amount allocation(Pod pod) {
        Amount apps = pod.getSpec().getContainers().stream()
                .map(container -> allocation(pod, container))
                .reduce(Amount.NONE, Amount::plus);
        return pod.getSpec().getInitContainers().stream()
                .map(container -> allocation(pod, container))
                .reduce(apps, Amount::max);
    }

    private static Amount allocation(Pod pod, Container container) {
        Amount sum = Amount.NONE;
        for (Vgpu vgpu : vgpus(pod, container)) {
            sum = sum.plus(new Amount(vgpu.memoryMiB(), vgpu.exclusive() ? 100 : vgpu.cores(), 1));
        }
        return sum;
    }

    private static List<Vgpu> vgpus(Pod pod, Container container) {
        String text = pod.getMetadata().getAnnotations().get(Annotations.vgpu(container.getName()));
        return text == null ? List.of() : Vgpus.parse(text).list();
    }

    private List<Pod> pending() {
        return present.values().stream()
                .filter(pod -> pod.getSpec().getNodeName() == null)
                .toList();
    }

    private String whyPending() {
        return pending().stream()
                .map(pod -> "\n" + pod.getMetadata().getName() + " "
                        + pod.getSpec().getContainers().get(0).getResources().getLimits() + ": "
                        + pod.getStatus().getConditions())
                .collect(Collectors.joining("", "not all pods are bound:", ""));
    }

    private Pod anyOf(List<Pod> pods) {
        return pods.get(random.nextInt(pods.size()));
    }

    /** Does something at random; returns the number of pods that it has created. */
    private int step(int number) throws Exception {
        List<Pod> running = present.values().stream()
                .filter(pod -> pod.getSpec().getNodeName() != null)
                .sorted(Comparator.comparing(pod -> pod.getMetadata().getName()))
                .toList();
        List<Pod> pending = pending();
        int dice = random.nextInt(100);
        if (dice < 45 || running.isEmpty()) {
            cluster.client.resource(pod("pod-" + number)).create();
            return 1;
        }
        if (dice < 67) {
            var unused = cluster.client
                    .pods()
                    .resource(anyOf(running))
                    .subresource("status")
                    .patch(PatchContext.of(PatchType.JSON_MERGE), "{\"status\": {\"phase\": \"Succeeded\"}}");
            count("ended");
        } else if (dice < 72) {
            var unused = cluster.client
                    .pods()
                    .resource(anyOf(running))
                    .withGracePeriod(0)
                    .delete();
            count("deleted by force");
        } else if (dice < 75 && !pending.isEmpty()) {
            var unused = cluster.client
                    .pods()
                    .resource(anyOf(pending))
                    .withGracePeriod(0)
                    .delete();
            count("deleted while Pending");
        } else if (dice < 90) {
            resize(anyOf(running));
        } else {
            changeQuota("team-" + random.nextInt(NAMESPACES));
        }
        return 0;
    }

    private void count(String what) {
        done.merge(what, 1, Integer::sum);
    }

    private Pod pod(String name) {
        var pod = new PodBuilder()
                .withNewMetadata()
                .withName(name)
                .withNamespace("team-" + random.nextInt(NAMESPACES))
                .endMetadata()
                .withNewSpec()
                .withSchedulerName("aliquot-scheduler")
                .addToContainers(container("main", request()))
                .endSpec();
        int more = random.nextInt(10);
        if (more == 0) {
            pod.editSpec().addToContainers(container("second", request())).endSpec();
        } else if (more == 1) {
            pod.editSpec().addToInitContainers(container("before", request())).endSpec();
        }
        return pod.build();
    }

    private Map<String, Integer> request() {
        return switch (random.nextInt(10)) {
            case 0 -> Map.of(Resources.VGPU, 1);
            case 1, 2 -> Map.of(Resources.VGPU, 1, Resources.MEMORY_PERCENTAGE, 1 + random.nextInt(40));
            case 3 -> Map.of(Resources.VGPU, 2, Resources.MEMORY, 500 + random.nextInt(4000));
            default ->
                Map.of(
                        Resources.VGPU,
                        1,
                        Resources.MEMORY,
                        500 + random.nextInt(8000),
                        Resources.CORES,
                        random.nextInt(30));
        };
    }

    private static Container container(String name, Map<String, Integer> amounts) {
        var resources = new HashMap<String, Quantity>();
        amounts.forEach((resource, amount) -> resources.put(resource, new Quantity(Integer.toString(amount))));
        return new ContainerBuilder()
                .withName(name)
                .withImage("image")
                .withNewResources()
                .withLimits(resources)
                .withRequests(resources)
                .endResources()
                .build();
    }

    private void resize(Pod pod) throws Exception {
        try {
            var answer = cluster.resize(pod, 500 + random.nextInt(12_000));
            count("resize " + answer.statusCode());
            assertThat(answer.statusCode()).as(answer.body()).isIn(200, 404, 409, 422, 503, 504);
        } catch (IOException e) {
            count("resize unanswered");
        }
    }

    private void changeQuota(String namespace) throws Exception {
        write(
                namespace,
                random.nextInt(12) == 0
                        ? Amount.UNLIMITED
                        : new Amount(
                                QUOTA_MIB / 3 + random.nextInt(QUOTA_MIB * 4 / 3),
                                random.nextInt(3) == 0 ? 50 + random.nextInt(200) : Long.MAX_VALUE,
                                random.nextInt(3) == 0 ? 2 + random.nextInt(15) : Long.MAX_VALUE));
    }

    /** Writes a quota; none if it limits nothing. */
    private void write(String namespace, Amount hard) throws Exception {
        boolean exists = !Amount.UNLIMITED.equals(quotas.get(namespace));
        long version = 0;
        if (hard.equals(Amount.UNLIMITED)) {
            version = version(cluster.client
                    .resourceQuotas()
                    .inNamespace(namespace)
                    .list()
                    .getMetadata()
                    .getResourceVersion());
            var unused = cluster.client.resourceQuotas().inNamespace(namespace).delete();
        } else {
            var object = new ResourceQuotaBuilder()
                    .withNewMetadata()
                    .withName(ReplicatedCluster.QUOTA)
                    .withNamespace(namespace)
                    .endMetadata()
                    .withNewSpec()
                    .addToHard("limits.nvidia.com/gpumem", new Quantity(Long.toString(hard.memoryMiB())));
            if (hard.cores() < Long.MAX_VALUE) {
                object.addToHard("limits.nvidia.com/gpucores", new Quantity(Long.toString(hard.cores())));
            }
            if (hard.vgpus() < Long.MAX_VALUE) {
                object.addToHard("limits.aliquot.io/vgpu", new Quantity(Long.toString(hard.vgpus())));
            }
            ResourceQuota quota = object.endSpec().build();
            version = version((exists
                            ? cluster.client.resource(quota).update()
                            : cluster.client.resource(quota).create())
                    .getMetadata()
                    .getResourceVersion());
        }
        quotas.put(namespace, hard);
        count("quota changes");
        written.add(new Written(version, namespace, hard));
    }

    /** Notes which quotas the replicas know by now; a later quota of the namespace counts as well. */
    private void noteKnownQuotas() throws InterruptedException {
        List<Map<String, Double>> answers = written.isEmpty() ? List.of() : cluster.answers();
        written.removeIf(quota -> {
            boolean known = !answers.isEmpty()
                    && answers.stream()
                            .allMatch(metrics -> ReplicatedCluster.quota(metrics, quota.namespace(), "", Long.MAX_VALUE)
                                    .equals(quotas.get(quota.namespace())));
            if (known) {
                history.allows(quota.version(), quota.namespace(), quota.hard());
            }
            return known;
        });
    }

    private void fault(int number) throws Exception {
        ReplicaProcess leader = cluster.leader().orElseThrow();
        switch (number % 6) {
            case 0 -> {
                count("fault: extender killed");
                leader.signal("KILL", Part.EXTENDER);
            }
            case 1 -> {
                count("fault: replica killed");
                leader.signal("KILL", Part.values());
            }
            case 2 -> {
                count("fault: replica ended");
                leader.signal("TERM", Part.values());
            }
            case 3 -> {
                count("fault: replica paused");
                leader.signal("STOP", Part.values());
                cluster.paused.add(leader);
                String holder = cluster.holder();
                Await.await(
                        () -> "another replica leads",
                        Duration.ofSeconds(60),
                        () -> !cluster.holder().equals(holder));
                for (int i = 0; i < 20; i++) {
                    var unused = step(PODS + number * 100 + i);
                }
                leader.signal("CONT", Part.values());
                cluster.paused.clear();
            }
            case 4 -> {
                count("fault: both replicas killed");
                for (ReplicaProcess replica : cluster.replicas) {
                    replica.signal("KILL", Part.values());
                }
            }
            default -> {
                count("fault: kube-scheduler killed");
                leader.signal("KILL", Part.KUBE_SCHEDULER);
            }
        }
    }

    /** Each replica's sums become those of the pods that the API server has. */
    private void awaitEqualSums() throws Exception {
        var last = new TreeMap<String, String>();
        Await.await(() -> "the sums differ: " + last, Duration.ofSeconds(60), () -> {
            cluster.replicas.forEach(ReplicaProcess::start);
            Map<String, Amount> expected = sums();
            List<Map<String, Double>> answers = cluster.answers();
            last.clear();
            if (answers.size() < cluster.replicas.size()) {
                last.put("replicas that answer", answers.size() + "");
            }
            noteKnownQuotas();
            written.forEach(quota -> last.put(quota.namespace(), "its quota is not known"));
            quotas.forEach((namespace, hard) -> {
                Amount sum = expected.getOrDefault(namespace, Amount.NONE);
                Amount limited = new Amount(
                        hard.memoryMiB() == Long.MAX_VALUE ? 0 : sum.memoryMiB(),
                        hard.cores() == Long.MAX_VALUE ? 0 : sum.cores(),
                        hard.vgpus() == Long.MAX_VALUE ? 0 : sum.vgpus());
                for (Map<String, Double> metrics : answers) {
                    Amount used = ReplicatedCluster.quota(metrics, namespace, "_used", 0);
                    if (!used.equals(limited)) {
                        last.put(namespace, used + " instead of " + limited);
                    }
                }
            });
            return last.isEmpty();
        });
        count("sums compared");
    }

    private Map<String, Amount> sums() {
        var sums = new TreeMap<String, Amount>();
        for (Pod pod : live()) {
            sums.merge(namespace(pod), allocation(pod), Amount::plus);
        }
        return sums;
    }

    /** The bound pods that have not ended, as the API server lists them. */
    private List<Pod> live() {
        return cluster.client.pods().inAnyNamespace().list().getItems().stream()
                .filter(pod -> pod.getSpec().getNodeName() != null
                        && !"Succeeded".equals(pod.getStatus().getPhase()))
                .toList();
    }

    private void checkGpus() {
        var memory = new HashMap<String, Integer>();
        for (Pod pod : live()) {
            var ofPod = new HashMap<String, Integer>();
            for (Container container : pod.getSpec().getContainers()) {
                vgpus(pod, container).forEach(vgpu -> ofPod.merge(vgpu.uuid(), vgpu.memoryMiB(), Integer::sum));
            }
            for (Container container : pod.getSpec().getInitContainers()) {
                vgpus(pod, container).forEach(vgpu -> ofPod.merge(vgpu.uuid(), vgpu.memoryMiB(), Math::max));
            }
            ofPod.forEach((gpu, amount) -> memory.merge(gpu, amount, Integer::sum));
        }
        assertThat(memory)
                .isNotEmpty()
                .allSatisfy((gpu, sum) -> assertThat(sum).isLessThanOrEqualTo(ReplicatedCluster.CARD_MIB));
    }
}
