package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.ContainerStatus;
import io.fabric8.kubernetes.api.model.Pod;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * An upgrade from an earlier commit to this one, and back. {@code ./aliquot test --long upgrade} loads that commit's images
 * into the nodes, with the tag {@value #TAG}.
 */
@ExtendWith(LabExtension.class)
@Isolated
@Tag("long")
@EnabledIfEnvironmentVariable(named = UpgradeIT.EARLIER, matches = ".+")
class UpgradeIT {
    /** The folder of the earlier commit. */
    static final String EARLIER = "ALIQUOT_LONG_EARLIER";

    private static final String TAG = "earlier";
    private static final String RELEASE = "aliquot";
    private static final int PODS_PER_STEP = 50;
    private static final int MAX_PODS_PER_STEP = 500;

    @Test
    void podsSurviveAnUpgradeAndARollbackAndNoBindingIsRefused(Lab lab, TestNamespace namespace) {
        Path earlier = Path.of(Objects.requireNonNull(System.getenv(EARLIER)));
        try {
            lab.aliquot("helm", "uninstall", RELEASE, "--namespace", Lab.NAMESPACE, "--wait")
                    .expectSuccess();
            helm(
                    lab,
                    "install",
                    earlier,
                    "--set",
                    "scheduler.image.tag=" + TAG,
                    "--set",
                    "devicePlugin.image.tag=" + TAG);
            namespace.run(Pods.withGpuMemory(lab, "share", 1000));
            namespace.run(Pods.withLimits(lab, "card", Map.of(Resources.VGPU, "1")));
            namespace.run(Pods.withLimits(lab, "both", Map.of(Resources.VGPU, "2", Resources.MEMORY, "500")));
            namespace.run(Pods.withoutGpu(lab, "other"));
            Map<String, String> before = state(namespace);
            AuditLog log = AuditLog.fromNowOn(lab);

            createPodsDuring(lab, namespace, "upgrade", () -> helm(lab, "upgrade", lab.root()));
            assertThat(state(namespace)).isEqualTo(before);
            createPodsDuring(lab, namespace, "rollback", () -> {
                lab.aliquot("helm", "rollback", RELEASE, "1", "--namespace", Lab.NAMESPACE)
                        .expectSuccess();
                awaitRollout(lab);
            });
            assertThat(state(namespace)).isEqualTo(before);

            List<AuditLog.Write> bindings = log.bindings();
            bindings.stream()
                    .filter(write -> write.code() != 201)
                    .forEach(write -> System.out.println("a Binding that was not written: " + write));
            assertThat(bindings).hasSizeGreaterThan(2 * PODS_PER_STEP);
            assertThat(bindings).noneMatch(write -> write.code() == 403 || write.code() == 422);
        } finally {
            lab.aliquot("up", "--no-build").expectSuccess();
        }
    }

    private static void helm(Lab lab, String verb, Path checkout, String... arguments) {
        var command = new ArrayList<>(List.of(
                "helm",
                verb,
                RELEASE,
                checkout.resolve("charts/aliquot").toString(),
                "--namespace",
                Lab.NAMESPACE,
                "--values",
                checkout.resolve("lab/values.yaml").toString(),
                "--values",
                checkout.resolve("lab/gpus.yaml").toString()));
        Collections.addAll(command, arguments);
        lab.aliquot(command.toArray(String[]::new)).expectSuccess();
        awaitRollout(lab);
    }

    private static void awaitRollout(Lab lab) {
        for (String object : List.of("daemonset/aliquot-device-plugin", "deployment/aliquot-scheduler")) {
            lab.kubectl("-n", Lab.NAMESPACE, "rollout", "status", object, "--timeout=170s")
                    .expectSuccess();
        }
        awaitTrue(
                "the nodes have vGPUs",
                EVENTUALLY,
                () -> lab.nodes().stream().allMatch(node -> lab.allocatable(node, Resources.VGPU) > 0));
    }

    /**
     * Creates pods until the change is complete and there are enough of them, every fifth one without a GPU, and waits until
     * all have run. None of them is refused.
     */
    private static void createPodsDuring(Lab lab, TestNamespace namespace, String step, Runnable change) {
        var failure = new ArrayList<Throwable>();
        Thread thread = Thread.ofPlatform().start(() -> {
            try {
                change.run();
            } catch (Throwable e) {
                failure.add(e);
            }
        });
        int created = 0;
        while ((thread.isAlive() || created < PODS_PER_STEP) && created < MAX_PODS_PER_STEP) {
            String name = step + "-" + created;
            Pod pod = created % 5 == 0 ? Pods.withoutGpu(lab, name) : Pods.withGpuMemory(lab, name, 100);
            namespace.create(pod.edit()
                    .editSpec()
                    .withRestartPolicy("Never")
                    .editFirstContainer()
                    .withCommand("true")
                    .endContainer()
                    .endSpec()
                    .build());
            created++;
            sleep();
        }
        join(thread);
        assertThat(failure).isEmpty();
        Predicate<Pod> ofStep = pod -> pod.getMetadata().getName().startsWith(step + "-");
        awaitTrue(
                "all pods of the " + step + " have run",
                EVENTUALLY.multipliedBy(2),
                () -> pods(lab, namespace).stream()
                        .filter(ofStep)
                        .allMatch(pod -> pod.getStatus().getPhase().equals("Succeeded")));
        System.out.println(step + ": " + created + " pods ran meanwhile");
        pods(lab, namespace).stream().filter(ofStep).forEach(namespace::requestDeletion);
    }

    private static List<Pod> pods(Lab lab, TestNamespace namespace) {
        return lab.client().pods().inNamespace(namespace.name()).list().getItems();
    }

    /** What an upgrade must not change of the pods that ran before: their containers, and what they hold. */
    private static Map<String, String> state(TestNamespace namespace) {
        var state = new TreeMap<String, String>();
        for (String name : List.of("share", "card", "both", "other")) {
            Pod pod = namespace.get(name);
            ContainerStatus container = TestNamespace.containerStatus(pod, Pods.MAIN);
            assertThat(TestNamespace.isRunning(pod)).isTrue();
            state.put(
                    name, container.getContainerID() + " " + pod.getMetadata().getAnnotations() + " " + pod.getSpec());
        }
        return state;
    }

    private static void sleep() {
        try {
            TimeUnit.MILLISECONDS.sleep(300);
        } catch (InterruptedException e) {
            throw new IllegalStateException("interrupted", e);
        }
    }

    private static void join(Thread thread) {
        try {
            if (!thread.join(Duration.ofMinutes(3))) {
                throw new AssertionError("the change has not completed");
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException("interrupted", e);
        }
    }
}
