package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.ObjectMetaBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * A kubelet that restarts rejects for good the pods that it admits before the node agent has registered (reason
 * UnexpectedAdmissionError, kubernetes#125579). While pods arrive on its node, it is killed again and again.
 */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class KubeletRestartIT {
    private static final int RESTARTS = 20;
    private static final int REPLICAS = 4;

    /** From the kill on, for the agent to see that its kubelet is gone and for the leader to hear of it. */
    private static final Duration NOTICE = Duration.ofSeconds(1);

    private static final Duration OUTAGE = Duration.ofSeconds(2);
    private static final Duration BETWEEN = Duration.ofSeconds(4);

    /** When the pods of a controller run, counted from the last registration. */
    private static final Duration RECOVERY = Duration.ofSeconds(30);

    private static final String REJECTED = "UnexpectedAdmissionError";

    @Test
    void podsThatArriveWhileTheKubeletRestartsAreNotLost(Lab lab, TestNamespace namespace) throws Exception {
        String node = lab.nodes().getFirst();
        createDeployment(lab, namespace, node);
        Pod before = namespace.run(withInitContainer(lab, node));
        var kills = new ArrayList<Long>();
        try (var stream = new Stream(lab, namespace, node)) {
            for (int i = 0; i < RESTARTS; i++) {
                TimeUnit.MILLISECONDS.sleep(BETWEEN.toMillis());
                kills.add(System.nanoTime());
                lab.kill(node + "/kubelet");
                TimeUnit.MILLISECONDS.sleep(OUTAGE.toMillis());
                lab.start(node + "/kubelet");
            }
            awaitDeployment(namespace, RECOVERY);
            stream.end();
            List<String> late = stream.rejectedAt().entrySet().stream()
                    .filter(rejected -> boundWhileGone(stream.boundAt(rejected.getKey()), rejected.getValue(), kills))
                    .map(Map.Entry::getKey)
                    .toList();
            System.out.printf(
                    "%d restarts of a kubelet: %d of %d pods rejected, %d of them bound later than %s after a kill%n",
                    RESTARTS, stream.rejectedAt().size(), stream.created(), late.size(), NOTICE);

            assertThat(late)
                    .as("rejected pods that were bound to a node without a kubelet")
                    .isEmpty();
        }
        Pod after = namespace.get("with-init-container");
        assertThat(after.getStatus().getPhase())
                .as("a pod whose init container holds a vGPU, see kubernetes#138446")
                .isEqualTo("Running");
        assertThat(TestNamespace.containerStatus(after, Pods.MAIN).getContainerID())
                .isEqualTo(TestNamespace.containerStatus(before, Pods.MAIN).getContainerID());
        Allocations.expectNoGpuOverCapacity(lab);
        namespace
                .client()
                .apps()
                .deployments()
                .inNamespace(namespace.name())
                .withName("deployed")
                .delete();
    }

    /**
     * The kubelet of a rebooted node rejects all pods with shares that ran there, because the node agent is a pod itself
     * and starts later. Two of these pods need more than half of a GPU each, so their successors run only if the rejected
     * pods' shares are free.
     */
    @Test
    void afterARebootThePodsOfControllersRunAgainAndAnEventNamesThoseThatWereRejected(
            Lab lab, TestNamespace namespace) {
        String node = lab.nodes().getFirst();
        create(namespace, "apps/v1", "Deployment", large(lab, node), Map.of("replicas", 2));
        create(namespace, "apps/v1", "StatefulSet", share(lab, "statefulset", node), Map.of("serviceName", "none"));
        create(namespace, "apps/v1", "DaemonSet", share(lab, "daemonset", node), Map.of());
        create(namespace, "batch/v1", "Job", once(share(lab, "job", node)), Map.of());
        namespace.run(share(lab, "bare", node));
        awaitTrue("all pods run", EVENTUALLY, () -> running(namespace).size() == 6);
        List<Pod> before = running(namespace);
        Set<String> rejected =
                before.stream().map(pod -> pod.getMetadata().getUid()).collect(Collectors.toSet());
        String bootId = bootId(lab, node);
        String agent = agentContainer(lab, node);

        assertThat(lab.aliquot("reboot", "node9").toString())
                .startsWith("exit 1")
                .contains("takes a node (node1 ");
        lab.reboot(node);

        awaitTrue("another boot ID", EVENTUALLY, () -> !bootId(lab, node).equals(bootId));
        awaitTrue(
                "the agent has registered",
                EVENTUALLY,
                () -> !agentContainer(lab, node).equals(agent) && lab.allocatable(node, Resources.VGPU) > 0);
        long registered = System.nanoTime();
        awaitTrue(
                "the pods of controllers run again",
                RECOVERY,
                () -> running(namespace).stream()
                                .filter(pod ->
                                        !rejected.contains(pod.getMetadata().getUid()))
                                .count()
                        == 5);
        System.out.printf(
                "after a reboot 5 pods of 4 controllers ran again %.1f s after the registration%n",
                (System.nanoTime() - registered) / 1e9);

        Pod bare = namespace.await(
                "bare",
                "is rejected and not deleted",
                EVENTUALLY,
                pod -> pod.getStatus().getPhase().equals("Failed"));
        assertThat(bare.getStatus().getReason()).isEqualTo(REJECTED);
        assertThat(namespace
                        .client()
                        .pods()
                        .inNamespace(namespace.name())
                        .withField("status.phase", "Failed")
                        .list()
                        .getItems())
                .as("a StatefulSet and a DaemonSet delete theirs")
                .extracting(pod -> pod.getMetadata().getName().replaceAll("-.*", ""))
                .containsExactlyInAnyOrder("deployment", "deployment", "job", "bare");
        awaitTrue("an event names all of them", EVENTUALLY, () -> {
            String events = lab.nodeEvents(node).stream()
                    .filter(event -> event.getReason().equals("GpuPodsRejected"))
                    .map(Event::getMessage)
                    .collect(Collectors.joining());
            return before.stream()
                    .allMatch(pod -> events.contains(
                            namespace.name() + "/" + pod.getMetadata().getName()));
        });
        assertThat(lab.nodeEvents(node))
                .filteredOn(event -> event.getReason().equals("GpuPodsRejected")
                        && event.getMessage().contains(namespace.name() + "/bare"))
                .hasSize(1);
        Allocations.expectNoGpuOverCapacity(lab);
        lab.kubectl("delete", "deployment,statefulset,daemonset,job", "--all", "--namespace", namespace.name())
                .expectSuccess();
    }

    private static Pod share(Lab lab, String name, String node) {
        return Pods.onNode(Pods.withGpuMemory(lab, name, 1000), node);
    }

    private static Pod large(Lab lab, String node) {
        return Pods.onNode(Pods.withGpuMemory(lab, "deployment", 50_000), node);
    }

    private static Pod once(Pod pod) {
        return pod.edit().editSpec().withRestartPolicy("Never").endSpec().build();
    }

    /** Creates a controller of such pods, whose name is that of the pod. */
    private static void create(
            TestNamespace namespace, String version, String kind, Pod pod, Map<String, Object> settings) {
        String name = pod.getMetadata().getName();
        var template = Map.of("metadata", Map.of("labels", Map.of("of", name)), "spec", pod.getSpec());
        var spec = new HashMap<String, Object>(settings);
        spec.put("template", template);
        if (!kind.equals("Job")) {
            spec.put("selector", Map.of("matchLabels", Map.of("of", name)));
        }
        var controller = new GenericKubernetesResource();
        controller.setApiVersion(version);
        controller.setKind(kind);
        controller.setMetadata(new ObjectMetaBuilder().withName(name).build());
        controller.setAdditionalProperty("spec", spec);
        namespace
                .client()
                .genericKubernetesResources(version, kind)
                .inNamespace(namespace.name())
                .resource(controller)
                .create();
    }

    private static List<Pod> running(TestNamespace namespace) {
        return namespace.client().pods().inNamespace(namespace.name()).list().getItems().stream()
                .filter(pod -> pod.getMetadata().getDeletionTimestamp() == null)
                .filter(TestNamespace::isRunning)
                .toList();
    }

    private static String agentContainer(Lab lab, String node) {
        return TestNamespace.containerStatus(lab.agentOf(node), "device-plugin").getContainerID();
    }

    private static String bootId(Lab lab, String node) {
        return lab.client()
                .nodes()
                .withName(node)
                .get()
                .getStatus()
                .getNodeInfo()
                .getBootID();
    }

    /** Whether the last kill before a pod's rejection was longer ago than {@link #NOTICE} when the pod was bound. */
    private static boolean boundWhileGone(long bound, long rejected, List<Long> kills) {
        long kill = kills.stream()
                .filter(at -> at < rejected)
                .reduce((first, last) -> last)
                .orElseThrow();
        return bound - kill > NOTICE.toNanos();
    }

    private static List<Pod> pods(TestNamespace namespace, String label) {
        return namespace
                .client()
                .pods()
                .inNamespace(namespace.name())
                .withLabel(label)
                .list()
                .getItems();
    }

    private static void createDeployment(Lab lab, TestNamespace namespace, String node) {
        namespace
                .client()
                .resource(Pods.deployment(Pods.onNode(Pods.withGpuMemory(lab, "deployed", 1000), node), REPLICAS))
                .inNamespace(namespace.name())
                .create();
        awaitDeployment(namespace, EVENTUALLY);
    }

    private static void awaitDeployment(TestNamespace namespace, Duration within) {
        awaitTrue(
                "the controller's pods run",
                within,
                () -> pods(namespace, "app").stream()
                                .filter(TestNamespace::isRunning)
                                .count()
                        == REPLICAS);
    }

    private static Pod withInitContainer(Lab lab, String node) {
        Pod pod = Pods.onNode(Pods.withGpuMemory(lab, "with-init-container", 1000), node);
        return pod.edit()
                .editSpec()
                .addToInitContainers(pod.getSpec()
                        .getContainers()
                        .getFirst()
                        .edit()
                        .withName("init")
                        .withCommand("true")
                        .build())
                .endSpec()
                .build();
    }

    /** Creates pods on a node all the time, deletes those that have run, and notes which the kubelet rejects. */
    private static final class Stream implements AutoCloseable {
        private static final int AT_ONCE = 8;

        private final Lab lab;
        private final TestNamespace namespace;
        private final String node;
        private final Map<String, Long> boundAt = new TreeMap<>();
        private final Map<String, Long> rejectedAt = new TreeMap<>();
        private final Thread thread = new Thread(this::run, "stream");
        private volatile boolean closed;
        private int created;

        Stream(Lab lab, TestNamespace namespace, String node) {
            this.lab = lab;
            this.namespace = namespace;
            this.node = node;
            thread.setDaemon(true);
            thread.start();
        }

        private void run() {
            while (!closed) {
                try {
                    step();
                    TimeUnit.MILLISECONDS.sleep(100);
                } catch (KubernetesClientException e) {
                    // the next step tries again
                } catch (InterruptedException e) {
                    return;
                }
            }
        }

        private void step() {
            List<Pod> pods = pods(namespace, "stream");
            long now = System.nanoTime();
            for (Pod pod : pods) {
                String name = pod.getMetadata().getName();
                if (TestNamespace.isBound(pod)) {
                    boundAt.putIfAbsent(name, now);
                }
                if (REJECTED.equals(pod.getStatus().getReason())) {
                    rejectedAt.putIfAbsent(name, now);
                }
                if (pod.getMetadata().getDeletionTimestamp() == null
                        && (TestNamespace.isRunning(pod) || rejectedAt.containsKey(name))) {
                    namespace.requestDeletion(pod);
                }
            }
            if (pods.size() < AT_ONCE) {
                namespace.create(Pods.onNode(Pods.withGpuMemory(lab, "stream-" + created, 1000), node)
                        .edit()
                        .editMetadata()
                        .addToLabels("stream", "")
                        .endMetadata()
                        .build());
                created++;
            }
        }

        int created() {
            return created;
        }

        long boundAt(String pod) {
            Long at = boundAt.get(pod);
            return at == null ? 0 : at;
        }

        Map<String, Long> rejectedAt() {
            return rejectedAt;
        }

        void end() {
            closed = true;
            try {
                thread.join(EVENTUALLY.toMillis());
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }

        @Override
        public void close() {
            end();
        }
    }
}
