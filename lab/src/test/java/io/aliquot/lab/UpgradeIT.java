package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
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
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * An upgrade from an earlier commit to this one, of the node agents first, and back, while programs use their GPUs and others
 * start. {@code ./aliquot test --long upgrade} loads that commit's images into the nodes, with the tag {@value #TAG}.
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
    private static final String AGENT = "device-plugin";
    private static final String SCHEDULER = "scheduler";

    /** The container of the agents with this commit's image */
    private static final String NEW_AGENT = "device-plugin=docker.io/aliquot-lab/aliquot-device-plugin:lab";

    private static final int LOOPS = 37;
    private static final int PODS_PER_STEP = 50;
    private static final Duration BETWEEN_PODS = Duration.ofSeconds(2);

    /** How long a new replica or agent has to be ready before the next one is replaced. */
    private static final Duration SIDE_BY_SIDE = Duration.ofSeconds(60);

    private static final Duration ROLLOUT = Duration.ofMinutes(12);

    /** Of each of the two cards that pods share: a third one is a pod's, and the fourth is divided into MIG instances. */
    private static final String SLOTS = "devicePlugin.slots=40";

    private static final String INSTANCE = "1g.10gb";

    private static final String INSTANCES = """
            fakeDriver.nodes.%s=[{"model": "NVIDIA A100-SXM4-80GB", "memoryMiB": 81920, "multiprocessors": 108, "contextMiB": 256},
             {"model": "NVIDIA A100-SXM4-80GB", "memoryMiB": 81920, "multiprocessors": 108, "contextMiB": 256, "mig": ["1g.10gb", "2g.20gb"]}]""";

    /** One program after the other; the container ends, and is restarted, after one that fails. */
    private static final String LOOP = """
            while vgpu-sample alloc 100 launch 100 free alloc 50 launch 100 sleep 10 > /tmp/last 2>&1 && ! grep CUDA_ERROR /tmp/last
            do echo >> /tmp/rounds; done
            cp /tmp/last /dev/termination-log; exit 1""";

    @Test
    void programsGoOnDuringAnUpgradeAndARollbackAndNoPodIsRefused(Lab lab, TestNamespace namespace) {
        Path earlier = Path.of(Objects.requireNonNull(System.getenv(EARLIER)));
        try {
            helm(
                    lab,
                    "install",
                    earlier,
                    "--create-namespace",
                    "--set",
                    "scheduler.image.tag=" + TAG,
                    "--set",
                    "devicePlugin.image.tag=" + TAG);
            awaitRollout(lab);
            for (String object : List.of("daemonset/aliquot-device-plugin", "deployment/aliquot-scheduler")) {
                String patch = "{\"spec\": {\"minReadySeconds\": " + SIDE_BY_SIDE.toSeconds() + "}}";
                lab.kubectl("-n", Lab.NAMESPACE, "patch", object, "--patch", patch)
                        .expectSuccess();
            }
            startPods(lab, namespace);
            awaitRollout(lab); // a DaemonSet replaces pods that are not available yet all at once
            Map<String, String> before = state(lab, namespace);
            AuditLog log = AuditLog.fromNowOn(lab);
            try (var watcher = new DoubleAllocationWatcher(lab.client())) {
                var agents = new Step(lab, namespace, "agents", Set.of(AGENT));
                agents.during(() -> lab.kubectl(
                                "-n", Lab.NAMESPACE, "set", "image", "daemonset/aliquot-device-plugin", NEW_AGENT)
                        .expectSuccess());
                assertThat(state(lab, namespace)).isEqualTo(before);
                var upgrade = new Step(lab, namespace, "upgrade", Set.of(SCHEDULER));
                upgrade.during(() -> helm(lab, "upgrade", lab.root()));
                assertThat(state(lab, namespace)).isEqualTo(before);
                var rollback = new Step(lab, namespace, "rollback", Set.of(AGENT, SCHEDULER));
                rollback.during(() -> lab.aliquot("helm", "rollback", RELEASE, "1", "--namespace", Lab.NAMESPACE)
                        .expectSuccess());
                assertThat(state(lab, namespace)).isEqualTo(before);

                assertThat(watcher.violations()).isEmpty();
            }
            List<AuditLog.Write> bindings = log.bindings();
            bindings.stream()
                    .filter(write -> write.code() != 201)
                    .forEach(write -> System.out.println("a Binding that was not written: " + write));
            assertThat(bindings).hasSizeGreaterThan(3 * PODS_PER_STEP);
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
                checkout.resolve("lab/gpus.yaml").toString(),
                "--set-json",
                INSTANCES.formatted(lab.nodes().getLast()),
                "--set",
                "devicePlugin.mig=true",
                "--set",
                SLOTS));
        Collections.addAll(command, arguments);
        lab.aliquot(command.toArray(String[]::new)).expectSuccess();
    }

    private static void awaitRollout(Lab lab) {
        for (String object :
                List.of("daemonset/aliquot-device-plugin", "deployment/aliquot-scheduler", "deployment/aliquot-api")) {
            awaitTrue(
                    object + " has the last form",
                    ROLLOUT,
                    () -> lab.kubectl("-n", Lab.NAMESPACE, "rollout", "status", object, "--watch=false")
                            .out()
                            .contains("successfully rolled out"));
        }
        awaitTrue(
                "the nodes have vGPUs",
                EVENTUALLY,
                () -> lab.nodes().stream().allMatch(node -> lab.allocatable(node, Resources.VGPU) > 0));
    }

    /** 40 pods whose programs allocate and launch all the time, one that holds a card, and one without a GPU. */
    private static void startPods(Lab lab, TestNamespace namespace) {
        namespace.run(Pods.onNode(
                Pods.withLimits(lab, "card", Map.of(Resources.VGPU, "1")),
                lab.nodes().getFirst()));
        namespace.run(Pods.withoutGpu(lab, "other"));
        for (String priority : List.of("high", "low")) {
            Pod pod = Pods.withLimits(lab, priority, Map.of(Resources.MEMORY, "1000", Resources.CORES, "40"));
            namespace.run(Pods.withAnnotations(
                    with(pod, "vgpu-sample alloc 100 busy 7200 > /tmp/busy"),
                    Map.of(
                            Annotations.CORE_POLICY, "elastic",
                            Annotations.PRIORITY, priority,
                            Annotations.NODE_PLACEMENT, "binpack",
                            Annotations.GPU_PLACEMENT, "binpack")));
        }
        assertThat(Allocations.gpuOf(namespace.get("high"))).isEqualTo(Allocations.gpuOf(namespace.get("low")));
        namespace.run(with(Pods.withLimits(lab, "mig", Map.of(Resources.INSTANCE_GROUP + INSTANCE, "1")), LOOP));
        assertThat(Allocations.gpuOf(namespace.get("mig"))).startsWith("MIG-");
        for (int i = 0; i < LOOPS; i++) {
            namespace.create(with(Pods.withGpuMemory(lab, "loop-" + i, 800), LOOP));
        }
        awaitTrue(
                "all pods run",
                EVENTUALLY.multipliedBy(5),
                () -> pods(lab, namespace).stream().allMatch(TestNamespace::isRunning));
    }

    private static Pod with(Pod pod, String program) {
        return pod.edit()
                .editSpec()
                .editFirstContainer()
                .withCommand("bash", "-c", program)
                .endContainer()
                .endSpec()
                .build();
    }

    private static List<Pod> pods(Lab lab, TestNamespace namespace) {
        return lab.client().pods().inNamespace(namespace.name()).list().getItems();
    }

    /** What an upgrade must not change of the pods that ran before: their containers, and what they hold. */
    private static Map<String, String> state(Lab lab, TestNamespace namespace) {
        var state = new TreeMap<String, String>();
        for (Pod pod : pods(lab, namespace)) {
            String name = pod.getMetadata().getName();
            if (pod.getMetadata().getLabels() != null
                    && pod.getMetadata().getLabels().containsKey(Step.LABEL)) {
                continue;
            }
            ContainerStatus container = TestNamespace.containerStatus(pod, Pods.MAIN);
            assertThat(TestNamespace.isRunning(pod))
                    .as(() -> namespace.describe(name))
                    .isTrue();
            assertThat(container.getRestartCount())
                    .as(() -> namespace.describe(name))
                    .isZero();
            state.put(
                    name, container.getContainerID() + " " + pod.getMetadata().getAnnotations() + " " + pod.getSpec());
        }
        return state;
    }

    /** A change of the release, what happens meanwhile, and what was seen of it. */
    private static final class Step {
        static final String LABEL = "step";

        private final Lab lab;
        private final TestNamespace namespace;
        private final String name;

        /** For each component that changes, how long pods of two versions were ready at the same time. */
        private final Map<String, Duration> mixed = new TreeMap<>();

        private int created;

        Step(Lab lab, TestNamespace namespace, String name, Set<String> components) {
            this.lab = lab;
            this.namespace = namespace;
            this.name = name;
            components.forEach(component -> mixed.put(component, Duration.ZERO));
        }

        /**
         * Creates pods until the change is complete, every fifth one without a GPU, and asks the aggregated API after each.
         * Waits until all pods have run; none of them is refused. Then the programs of before still use their GPUs.
         */
        void during(Runnable change) {
            var failure = new ArrayList<Throwable>();
            Thread thread = Thread.ofPlatform().start(() -> {
                try {
                    change.run();
                    awaitRollout(lab);
                } catch (Throwable e) {
                    failure.add(e);
                }
            });
            while (thread.isAlive() || created < PODS_PER_STEP) {
                long start = System.nanoTime();
                createPod();
                lab.kubectl("get", "gpushares", "--namespace", namespace.name()).expectSuccess();
                sleep(BETWEEN_PODS);
                Duration round = Duration.ofNanos(System.nanoTime() - start);
                mixed.replaceAll((component, time) -> isMixed(component) ? time.plus(round) : time);
            }
            assertThat(failure).isEmpty();
            Predicate<Pod> ofStep = pod -> pod.getMetadata().getName().startsWith(name + "-");
            awaitTrue(
                    "all pods of the " + name + " have run",
                    EVENTUALLY.multipliedBy(2),
                    () -> pods(lab, namespace).stream()
                            .filter(ofStep)
                            .allMatch(pod -> pod.getStatus().getPhase().equals("Succeeded")));
            System.out.println(name + ": " + created + " pods ran meanwhile; two versions were ready for " + mixed);
            assertThat(mixed.values()).allSatisfy(time -> assertThat(time).isGreaterThan(SIDE_BY_SIDE.dividedBy(2)));
            pods(lab, namespace).stream().filter(ofStep).forEach(namespace::requestDeletion);
            expectPrograms();
        }

        private void createPod() {
            String pod = name + "-" + created;
            Pod one = created % 5 == 0 ? Pods.withoutGpu(lab, pod) : Pods.withGpuMemory(lab, pod, 100);
            namespace.create(with(one, "true")
                    .edit()
                    .editMetadata()
                    .addToLabels(LABEL, name)
                    .endMetadata()
                    .editSpec()
                    .withRestartPolicy("Never")
                    .endSpec()
                    .build());
            created++;
        }

        private boolean isMixed(String component) {
            return lab.componentPods(component).stream()
                            .filter(TestNamespace::isReady)
                            .flatMap(pod -> pod.getSpec().getContainers().stream())
                            .filter(container -> container.getImage().contains("/aliquot-"))
                            .map(container -> container.getImage().replaceFirst(".*:", ""))
                            .distinct()
                            .count()
                    > 1;
        }

        private void expectPrograms() {
            var rounds = new TreeMap<String, Integer>();
            for (String pod : List.of("mig", "loop-0", "loop-" + (LOOPS - 1))) {
                rounds.put(pod, rounds(pod));
            }
            rounds.forEach((pod, before) ->
                    awaitTrue("a further program of " + pod + " ends", EVENTUALLY, () -> rounds(pod) > before));
            assertThat(kernels("high")).as("kernels of 1 ms a second").isGreaterThan(kernels("low"));
            assertThat(kernels("low")).as("of low priority, its floor").isGreaterThan(10);
            System.out.println("after the " + name + " high and low had " + kernels("high") + " and " + kernels("low")
                    + " kernels of 1 ms a second");
        }

        private int rounds(String pod) {
            return Integer.parseInt(namespace
                    .exec(pod, "sh", "-c", "wc -l < /tmp/rounds || echo 0")
                    .expectSuccess()
                    .strip());
        }

        private double kernels(String pod) {
            return namespace
                    .exec(pod, "tail", "-n", "5", "/tmp/busy")
                    .expectSuccess()
                    .lines()
                    .filter(line -> line.startsWith("busy"))
                    .mapToInt(line -> Integer.parseInt(line.replaceFirst("busy[ 0-9]*: ([0-9]+) .*", "$1")))
                    .average()
                    .orElse(0);
        }
    }

    private static void sleep(Duration time) {
        try {
            TimeUnit.MILLISECONDS.sleep(time.toMillis());
        } catch (InterruptedException e) {
            throw new IllegalStateException("interrupted", e);
        }
    }
}
