package io.aliquot.lab;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.fabric8.kubernetes.api.model.ContainerStatus;
import io.fabric8.kubernetes.api.model.Event;
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
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;

/** A namespace of one test's own, and what tests do in it. Closing it waits until its pods are gone. */
final class TestNamespace implements AutoCloseable {
    /** What a user may expect of a cluster with room: the pod runs within this. */
    static final Duration PROMPT = Duration.ofSeconds(5);

    /** For steps whose speed is not what is tested, on a busy machine. */
    static final Duration EVENTUALLY = Duration.ofSeconds(60);

    private final Lab lab;
    private final KubernetesClient client;
    private final String name;

    TestNamespace(Lab lab, String name) {
        this.lab = lab;
        this.client = lab.client();
        this.name = name;
        client.resource(new NamespaceBuilder()
                        .withNewMetadata()
                        .withName(name)
                        .endMetadata()
                        .build())
                .create();
        // A pod is refused before its service account exists, which the controller manager makes.
        awaitTrue(
                "a service account in " + name,
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

    KubernetesClient client() {
        return client;
    }

    Pod create(Pod pod) {
        return client.resource(pod).inNamespace(name).create();
    }

    /** One that the cluster gives out for a service account of the space. */
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
        return await(pod, "runs", within, TestNamespace::runs);
    }

    /** Waits until a pod is what it should be, or fails with all that is known about it. */
    Pod await(String pod, String what, Duration within, Predicate<Pod> condition) {
        try {
            return resource(pod)
                    .waitUntilCondition(p -> p != null && condition.test(p), within.toMillis(), TimeUnit.MILLISECONDS);
        } catch (KubernetesClientTimeoutException e) {
            throw new AssertionError("not within " + within + ": pod " + pod + " " + what + "\n" + describe(pod), e);
        }
    }

    /** Waits until the scheduler has said that a pod must wait, and returns what it said. */
    String awaitUnschedulable(String pod) {
        return await(
                        pod,
                        "is said to be unschedulable",
                        EVENTUALLY,
                        p -> unschedulable(p).isPresent())
                .getStatus()
                .getConditions()
                .stream()
                .filter(TestNamespace::isUnschedulable)
                .map(PodCondition::getMessage)
                .findFirst()
                .orElseThrow();
    }

    static boolean runs(Pod pod) {
        List<ContainerStatus> containers = pod.getStatus().getContainerStatuses();
        return containers.size() == pod.getSpec().getContainers().size()
                && containers.stream().allMatch(c -> c.getState().getRunning() != null);
    }

    static boolean bound(Pod pod) {
        return pod.getSpec().getNodeName() != null;
    }

    /** Whether the scheduler has said that it must. */
    static boolean waits(Pod pod) {
        return unschedulable(pod).isPresent();
    }

    static boolean ready(Pod pod) {
        return pod.getStatus().getConditions().stream()
                .anyMatch(condition -> condition.getType().equals("Ready")
                        && condition.getStatus().equals("True"));
    }

    static ContainerStatus status(Pod pod, String container) {
        return pod.getStatus().getContainerStatuses().stream()
                .filter(status -> status.getName().equals(container))
                .findFirst()
                .orElseThrow();
    }

    private static Optional<PodCondition> unschedulable(Pod pod) {
        return pod.getStatus().getConditions().stream()
                .filter(TestNamespace::isUnschedulable)
                .findFirst();
    }

    private static boolean isUnschedulable(PodCondition condition) {
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

    /** Says of a pod on a node without kubelet what that would say when the pod's containers have done their work. */
    void end(String pod) {
        resource(pod)
                .subresource("status")
                .patch(PatchContext.of(PatchType.JSON_MERGE), "{\"status\":{\"phase\":\"Succeeded\"}}");
    }

    /** Deletes a pod and waits until it is gone, and its share free. */
    void delete(String pod) {
        tellToLeave(get(pod));
        resource(pod).waitUntilCondition(p -> p == null, EVENTUALLY.toMillis(), TimeUnit.MILLISECONDS);
    }

    /** Deletes all pods and waits until they are gone, and their shares free. */
    void empty() {
        client.pods().inNamespace(name).list().getItems().forEach(this::tellToLeave);
        awaitTrue(
                "no pods in " + name,
                EVENTUALLY,
                () -> client.pods().inNamespace(name).list().getItems().isEmpty());
    }

    /** What a kubelet has is not deleted by force, as it would hold its share for seconds after it is gone. */
    void tellToLeave(Pod pod) {
        boolean hasKubelet = lab.nodes().contains(String.valueOf(pod.getSpec().getNodeName()));
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

    /** Polls what has no watch. */
    static void awaitTrue(String what, Duration within, BooleanSupplier condition) {
        long end = System.nanoTime() + within.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("not within " + within + ": " + what);
            }
            try {
                TimeUnit.MILLISECONDS.sleep(100);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new IllegalStateException("interrupted while waiting for " + what, e);
            }
        }
    }

    /** All that one would look at after a failure. */
    String describe() {
        return lab.kubectl("describe", "pods", "--namespace", name)
                + "\n"
                + lab.kubectl(
                        "logs",
                        "--namespace",
                        Lab.NAMESPACE,
                        "deployment/aliquot-scheduler",
                        "-c",
                        "extender",
                        "--tail=40");
    }

    @Override
    public void close() {
        empty();
        client.namespaces().withName(name).delete();
    }
}
