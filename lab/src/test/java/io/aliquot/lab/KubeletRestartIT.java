package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.apps.DeploymentBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
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
        var labels = Map.of("deployed", "");
        namespace
                .client()
                .resource(new DeploymentBuilder()
                        .withNewMetadata()
                        .withName("deployed")
                        .withNamespace(namespace.name())
                        .endMetadata()
                        .withNewSpec()
                        .withReplicas(REPLICAS)
                        .withNewSelector()
                        .withMatchLabels(labels)
                        .endSelector()
                        .withNewTemplate()
                        .withNewMetadata()
                        .withLabels(labels)
                        .endMetadata()
                        .withSpec(Pods.onNode(Pods.withGpuMemory(lab, "any", 1000), node)
                                .getSpec())
                        .endTemplate()
                        .endSpec()
                        .build())
                .create();
        awaitDeployment(namespace, EVENTUALLY);
    }

    private static void awaitDeployment(TestNamespace namespace, Duration within) {
        awaitTrue(
                "the controller's pods run",
                within,
                () -> pods(namespace, "deployed").stream()
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
