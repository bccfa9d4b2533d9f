package io.aliquot.lab;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.fabric8.kubernetes.api.model.ContainerStatus;
import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.EventSource;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodCondition;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientTimeoutException;
import io.fabric8.kubernetes.client.dsl.ExecWatch;
import io.fabric8.kubernetes.client.dsl.PodResource;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.io.ByteArrayOutputStream;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/** The namespace of one test. Closing it deletes its pods and waits until they are gone. */
final class TestNamespace implements AutoCloseable {
    /**
     * The time in which a pod must run if the cluster has free capacity for it: seconds on a quiet machine. Without a
     * wake-up kube-scheduler tries an unschedulable pod again after five minutes.
     */
    static final Duration PROMPTLY = Duration.ofSeconds(15);

    /** The timeout of steps whose speed is not under test, on a busy machine. */
    static final Duration EVENTUALLY = Duration.ofSeconds(60);

    /**
     * By then a kubelet has written a changed annotation into a pod's volume. A change that comes while it writes the
     * pod's files waits for the pod's next sync, 60 to 90 s later (docs/api.md).
     */
    static final Duration VOLUME_UPDATED = Duration.ofMinutes(2);

    private final Lab lab;
    private final KubernetesClient client;
    private final String name;
    private final Optional<String> node;

    /**
     * Creates the namespace.
     *
     * @param node where its pods run; empty if they may run on all nodes
     */
    TestNamespace(Lab lab, String name, Optional<String> node) {
        this.lab = lab;
        this.client = lab.client();
        this.name = name;
        this.node = node;
        client.resource(new NamespaceBuilder()
                        .withNewMetadata()
                        .withName(name)
                        .endMetadata()
                        .build())
                .create();
        // Pods are refused until kube-controller-manager has created the namespace's service account.
        awaitTrue(
                "a service account in namespace " + name,
                EVENTUALLY,
                () -> client.serviceAccounts()
                                .inNamespace(name)
                                .withName("default")
                                .get()
                        != null);
    }

    String name() {
        return name;
    }

    Lab lab() {
        return lab;
    }

    /** The node that the test has to itself, where its pods run; the first one, if it has all nodes. */
    String node() {
        return node.orElseGet(() -> lab.nodes().getFirst());
    }

    KubernetesClient client() {
        return client;
    }

    Pod create(Pod pod) {
        Pod placed = node.isEmpty() || isBound(pod) ? pod : Pods.onNode(pod, node());
        return client.resource(placed).inNamespace(name).create();
    }

    /** A token of a service account of the namespace, issued by the API server. */
    String token(String account) {
        return lab.kubectl("create", "token", account, "--namespace", name)
                .expectSuccess()
                .strip();
    }

    /** Creates a pod and waits until it runs. */
    Pod run(Pod pod) {
        create(pod);
        return awaitRunning(pod.getMetadata().getName(), EVENTUALLY);
    }

    Pod get(String pod) {
        return Optional.ofNullable(resource(pod).get()).orElseThrow(() -> new AssertionError("there is no pod " + pod));
    }

    Pod awaitRunning(String pod, Duration within) {
        return await(pod, "runs", within, TestNamespace::isRunning);
    }

    /** Waits until a pod meets a condition; fails with the pod's description. */
    Pod await(String pod, String what, Duration within, Predicate<Pod> condition) {
        try {
            return resource(pod)
                    .waitUntilCondition(p -> p != null && condition.test(p), within.toMillis(), TimeUnit.MILLISECONDS);
        } catch (KubernetesClientTimeoutException e) {
            throw new AssertionError(
                    "timed out after " + within + ": pod " + pod + " " + what + "\n" + describe(pod), e);
        }
    }

    /** Waits until a pod is marked Unschedulable, and returns the message of the condition. */
    String awaitUnschedulable(String pod) {
        return await(pod, "is marked Unschedulable", EVENTUALLY, p -> isUnschedulable(p))
                .getStatus()
                .getConditions()
                .stream()
                .filter(TestNamespace::saysUnschedulable)
                .map(PodCondition::getMessage)
                .findFirst()
                .orElseThrow();
    }

    static boolean isRunning(Pod pod) {
        List<ContainerStatus> containers = pod.getStatus().getContainerStatuses();
        return containers.size() == pod.getSpec().getContainers().size()
                && containers.stream().allMatch(c -> c.getState().getRunning() != null);
    }

    static boolean isBound(Pod pod) {
        return pod.getSpec().getNodeName() != null;
    }

    static boolean isUnschedulable(Pod pod) {
        return unschedulableCondition(pod).isPresent();
    }

    static boolean isReady(Pod pod) {
        return pod.getStatus().getConditions().stream()
                .anyMatch(condition -> condition.getType().equals("Ready")
                        && condition.getStatus().equals("True"));
    }

    static ContainerStatus containerStatus(Pod pod, String container) {
        return pod.getStatus().getContainerStatuses().stream()
                .filter(status -> status.getName().equals(container))
                .findFirst()
                .orElseThrow();
    }

    private static Optional<PodCondition> unschedulableCondition(Pod pod) {
        return pod.getStatus().getConditions().stream()
                .filter(TestNamespace::saysUnschedulable)
                .findFirst();
    }

    private static boolean saysUnschedulable(PodCondition condition) {
        return condition.getType().equals("PodScheduled") && "Unschedulable".equals(condition.getReason());
    }

    /** Runs a command in a pod's container. */
    Lab.Output execIn(String pod, String container, String... command) {
        var out = new ByteArrayOutputStream();
        var err = new ByteArrayOutputStream();
        try (ExecWatch watch = resource(pod)
                .inContainer(container)
                .writingOutput(out)
                .writingError(err)
                .exec(command)) {
            Integer exit = watch.exitCode().get(60, TimeUnit.SECONDS);
            return new Lab.Output(exit == null ? -1 : exit, out.toString(UTF_8), err.toString(UTF_8));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while a command ran in pod " + pod, e);
        } catch (ExecutionException | TimeoutException e) {
            throw new AssertionError("a command in pod " + pod + " failed: " + List.of(command) + "\n" + out + err, e);
        }
    }

    Lab.Output exec(String pod, String... command) {
        return execIn(pod, Pods.MAIN, command);
    }

    /** Sets the phase of a pod to Succeeded, as the kubelet does; for nodes without a kubelet. */
    void markSucceeded(String pod) {
        resource(pod)
                .subresource("status")
                .patch(PatchContext.of(PatchType.JSON_MERGE), "{\"status\":{\"phase\":\"Succeeded\"}}");
    }

    /** Deletes a pod and waits until it is gone and its share is free. */
    void delete(String pod) {
        requestDeletion(get(pod));
        resource(pod).waitUntilCondition(p -> p == null, EVENTUALLY.toMillis(), TimeUnit.MILLISECONDS);
    }

    /** Deletes all pods and waits until they are gone and their shares are free. */
    void deleteAllPods() {
        client.pods().inNamespace(name).list().getItems().forEach(this::requestDeletion);
        awaitTrue(
                "no pods in namespace " + name,
                EVENTUALLY,
                () -> client.pods().inNamespace(name).list().getItems().isEmpty());
    }

    /**
     * Requests a pod's deletion as the pod's kubelet would, if it has none: a pod that is deleted before its end keeps its
     * share until a node agent has not found it for half a minute.
     */
    void requestDeletion(Pod pod) {
        String node = String.valueOf(pod.getSpec().getNodeName());
        boolean hasKubelet = lab.hasKubelet(node);
        if (!hasKubelet && isBound(pod)) {
            markSucceeded(pod.getMetadata().getName());
        }
        client.resource(pod).withGracePeriod(hasKubelet ? 1 : 0).delete();
    }

    List<Event> events(String pod) {
        return client.v1()
                .events()
                .inNamespace(name)
                .withField("involvedObject.name", pod)
                .list()
                .getItems();
    }

    /** The nodes whose kubelet has written an event about a pod of this namespace. */
    Set<String> nodesWithContainers() {
        return client.v1().events().inNamespace(name).list().getItems().stream()
                .map(Event::getSource)
                .filter(source -> source != null && "kubelet".equals(source.getComponent()))
                .map(EventSource::getHost)
                .collect(Collectors.toSet());
    }

    Map<String, String> annotations(String pod) {
        Map<String, String> annotations = get(pod).getMetadata().getAnnotations();
        return annotations == null ? Map.of() : annotations;
    }

    String annotation(String pod, String key) {
        return Optional.ofNullable(annotations(pod).get(key))
                .orElseThrow(() -> new AssertionError("pod " + pod + " has no annotation " + key));
    }

    String describe(String pod) {
        return lab.kubectl("describe", "pod", "--namespace", name, pod).toString();
    }

    private PodResource resource(String pod) {
        return client.pods().inNamespace(name).withName(pod);
    }

    /** Polls a condition until it holds. */
    static void awaitTrue(String what, Duration within, BooleanSupplier condition) {
        long end = System.nanoTime() + within.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("timed out after " + within + ": " + what);
            }
            try {
                TimeUnit.MILLISECONDS.sleep(100);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new IllegalStateException("interrupted while waiting for " + what, e);
            }
        }
    }

    /** The namespace's pods and the extender's last log lines, to add to a failure. */
    String diagnostics() {
        return lab.kubectl("describe", "pods", "--namespace", name)
                + "\n"
                + lab.kubectl(
                        "logs",
                        "--namespace",
                        Lab.NAMESPACE,
                        "--selector",
                        "app.kubernetes.io/component=scheduler",
                        "--prefix",
                        "-c",
                        "extender",
                        "--tail=40");
    }

    @Override
    public void close() {
        deleteAllPods();
        client.namespaces().withName(name).delete();
    }
}
