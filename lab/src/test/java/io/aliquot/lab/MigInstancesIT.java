package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuKind;
import io.aliquot.api.pods.Vgpu;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * A node that has two MIG instances in the place of one of its cards, and agents with {@code devicePlugin.mig=true}. The
 * agents start after the instances: a container sees the simulated instances that were there when it started.
 */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class MigInstancesIT {
    private static final String SMALL = "1g.10gb";
    private static final int SMALL_MIB = 9856;
    private static final String LARGE = "2g.20gb";
    private static final String PRODUCT = "nvidia.com/gpu.product";

    /** The time in which the agent and the scheduler notice what happens to an instance. */
    private static final Duration NOTICE = Duration.ofSeconds(30);

    private static final String CLAIMS = """
            {"metadata": {
              "labels": {"aliquot.io/gpu": "on", "aliquot.io/gpu.shared": "on", "aliquot.io/mig": "on"},
              "annotations": {"aliquot.io/default-memory-percentage": "25"}}}""";

    private static String card = "";

    @BeforeAll
    static void divideACard(Lab lab) {
        String node = node(lab);
        card = Allocations.inventory(lab, node).gpus().getLast().uuid();
        lab.driver(node, "mig", card, "on");
        lab.driver(node, "mig-create", card, SMALL);
        lab.driver(node, "mig-create", card, LARGE);
        restartAgents(lab, true);
        awaitTrue("two instances", EVENTUALLY, () -> instances(lab).count() == 2);
    }

    /** What NVML does not list any more leaves the inventory some time after the node's last pod. */
    @AfterAll
    static void makeItACardAgain(Lab lab) {
        String node = node(lab);
        lab.driver(node, "reboot"); // destroys the instances
        lab.driver(node, "mig", card, "off");
        restartAgents(lab, false);
        awaitTrue(
                "two cards",
                EVENTUALLY,
                () -> instances(lab).findAny().isEmpty()
                        && Allocations.inventory(lab, node).gpus().size() == 2
                        && lab.allocatable(node, Resources.MEMORY) == 2 * 81920);
    }

    private static void restartAgents(Lab lab, boolean mig) {
        lab.upgrade("devicePlugin.mig=" + mig);
        lab.awaitAgents();
    }

    private static String node(Lab lab) {
        return lab.nodes().getLast();
    }

    private static Stream<Gpu> instances(Lab lab) {
        return Allocations.inventory(lab, node(lab)).gpus().stream()
                .filter(gpu -> gpu.instance().isPresent());
    }

    /** The healthy instance of a profile. */
    private static String instance(Lab lab, String profile) {
        return instances(lab)
                .filter(Gpu::healthy)
                .filter(gpu -> gpu.instance().map(GpuKind.MigInstance::profile).equals(Optional.of(profile)))
                .map(Gpu::uuid)
                .findFirst()
                .orElseThrow();
    }

    @Test
    void podsOfNvidiasPluginRunWhereTheirNamespaceClaimsThemAndStayAsTheyAreElsewhere(
            Lab lab, TestNamespace namespace) {
        Pod slice = Pods.withLimits(lab, "slice", Map.of(ForeignResources.NVIDIA_GPU_SHARED, "1"));
        Pod instance = Pods.withLimits(lab, "instance", Map.of(Resources.NVIDIA_INSTANCE_PREFIX + SMALL, "1"));
        Pod product = Pods.withLimits(lab, "product", Map.of(ForeignResources.NVIDIA_GPU, "1"))
                .edit()
                .editSpec()
                .addToNodeSelector(PRODUCT, "NVIDIA-A100-SXM4-80GB")
                .endSpec()
                .build();
        for (Pod pod : List.of(slice, instance, product)) {
            Pod stored = namespace.create(pod);

            // The API server calls no webhook of Aliquot's for this namespace.
            Pod untouched = lab.client()
                    .resource(pod)
                    .inNamespace("kube-system")
                    .dryRun()
                    .create();
            assertThat(Serialization.asJson(stored.getSpec())).isEqualTo(Serialization.asJson(untouched.getSpec()));
            assertThat(stored.getSpec().getSchedulerName()).isEqualTo("default-scheduler");
            assertThat(stored.getMetadata().getLabels()).isNullOrEmpty();
            assertThat(stored.getMetadata().getAnnotations()).isNullOrEmpty();
            namespace.awaitUnschedulable(pod.getMetadata().getName());
            assertThat(namespace.get(pod.getMetadata().getName()).getSpec()).isEqualTo(stored.getSpec());
        }

        try (var claiming = new TestNamespace(lab, namespace.name() + "-claims", Optional.empty())) {
            lab.kubectl("patch", "namespace", claiming.name(), "--type", "merge", "--patch", CLAIMS)
                    .expectSuccess();
            awaitTrue("the namespace claims its pods", EVENTUALLY, () -> claims(claiming, List.of(slice, instance)));

            assertThat(Allocations.of(claiming.run(slice), Pods.MAIN))
                    .extracting(Vgpu::memoryMiB)
                    .containsExactly(81920 / 4);
            assertThat(claiming.exec("slice", "nvidia-smi").expectSuccess()).contains("0MiB / 20480MiB");

            Pod small = claiming.run(instance);
            String uuid = instance(lab, SMALL);
            assertThat(small.getSpec().getNodeName()).isEqualTo(node(lab));
            assertThat(small.getSpec().getContainers().getFirst().getResources().getLimits())
                    .containsOnly(
                            Map.entry(Resources.VGPU, new Quantity("1")),
                            Map.entry(Resources.INSTANCE_GROUP + SMALL, new Quantity("1")));
            assertThat(Allocations.gpuOf(small)).isEqualTo(uuid);
            assertThat(claiming.exec("instance", "nvidia-smi", "-L").expectSuccess())
                    .containsOnlyOnce("UUID: MIG-")
                    .contains("MIG " + SMALL, uuid);
            assertThat(claiming.exec("instance", "vgpu-sample", "alloc", "9500", "alloc", "500")
                            .expectSuccess())
                    .contains("alloc 9500 MiB: CUDA_SUCCESS", "alloc 500 MiB: CUDA_ERROR_OUT_OF_MEMORY");

            Pod whole = claiming.run(product);
            assertThat(whole.getSpec().getNodeName()).isIn(lab.nodes());
            assertThat(Allocations.gpuOf(whole)).startsWith("GPU-");
        }
        assertThat(namespace
                        .client()
                        .pods()
                        .inNamespace(namespace.name())
                        .list()
                        .getItems())
                .hasSize(3)
                .noneMatch(TestNamespace::isBound);
    }

    /** Whether pods get Aliquot's scheduler; those of a namespace without the size of a slice are refused. */
    private static boolean claims(TestNamespace namespace, List<Pod> pods) {
        try {
            return pods.stream()
                    .allMatch(pod -> namespace
                            .client()
                            .resource(pod)
                            .inNamespace(namespace.name())
                            .dryRun()
                            .create()
                            .getSpec()
                            .getSchedulerName()
                            .equals("aliquot-scheduler"));
        } catch (KubernetesClientException e) {
            return false;
        }
    }

    @Test
    void theNodesModeDecidesWhetherSharesTakeItsInstancesWholeOrInPart(Lab lab, TestNamespace namespace) {
        String uuid = instance(lab, SMALL);
        try {
            setMode(lab, "mig");
            Pod whole =
                    namespace.run(share(lab, "whole", Map.of(Resources.MEMORY, "9000", Resources.CORES, "14"), "MIG"));
            assertThat(Allocations.of(whole, Pods.MAIN)).singleElement().satisfies(vgpu -> {
                assertThat(vgpu.uuid()).isEqualTo(uuid);
                assertThat(vgpu.memoryMiB()).isEqualTo(SMALL_MIB);
                assertThat(vgpu.exclusive()).isTrue();
            });
            namespace.delete("whole");

            setMode(lab, "mig-shim");
            for (String name : List.of("part", "other")) {
                assertThat(Allocations.gpuOf(
                                namespace.run(share(lab, name, Map.of(Resources.MEMORY, "4000"), "MIG " + SMALL))))
                        .isEqualTo(uuid);
                assertThat(namespace
                                .exec(name, "vgpu-sample", "alloc", "3700", "alloc", "300")
                                .expectSuccess())
                        .contains("alloc 3700 MiB: CUDA_SUCCESS", "alloc 300 MiB: CUDA_ERROR_OUT_OF_MEMORY");
            }
        } finally {
            lab.kubectl("label", "node", node(lab), Labels.SHARE + "-").expectSuccess();
        }
    }

    private static Pod share(Lab lab, String name, Map<String, String> limits, String model) {
        return Pods.withAnnotations(Pods.withLimits(lab, name, limits), Map.of(Annotations.USE_GPU_MODEL, model));
    }

    private static void setMode(Lab lab, String mode) {
        lab.kubectl("label", "--overwrite", "node", node(lab), Labels.SHARE + "=" + mode)
                .expectSuccess();
        awaitTrue(
                "the scheduler knows the mode",
                EVENTUALLY,
                () -> nodeStatus(lab, "sharingMode").equals(mode));
    }

    private static String nodeStatus(Lab lab, String field) {
        return lab.kubectl("get", "gpunode", node(lab), "--output", "jsonpath={.status." + field + "}")
                .expectSuccess();
    }

    @Test
    void anInstanceThatIsDestroyedUnderAPodIsNamedInAnEventAndANewOneTakesPods(Lab lab, TestNamespace namespace) {
        String node = node(lab);
        Map<String, String> limits = Map.of(Resources.INSTANCE_GROUP + LARGE, "1");
        String gone = Allocations.gpuOf(namespace.run(Pods.withLimits(lab, "holder", limits)));

        lab.driver(node, "mig-destroy", gone);

        awaitTrue(
                "an event on the pod",
                NOTICE,
                () -> namespace.events("holder").stream()
                        .anyMatch(event -> "GpuUnhealthy".equals(event.getReason())
                                && event.getMessage().contains(gone)
                                && event.getMessage().contains("NVML does not list it any more")));
        awaitTrue(
                "an event on the node",
                EVENTUALLY,
                () -> lab.nodeEvents(node).stream()
                        .anyMatch(event -> "GpuUnhealthy".equals(event.getReason())
                                && event.getMessage().contains(gone)));
        assertThat(lab.kubectl("get", "gpu", gone.toLowerCase(Locale.ROOT)).expectSuccess())
                .contains("MIG " + LARGE, "Unhealthy");
        assertThat(nodeStatus(lab, "healthyGpus")).isEqualTo("2");

        lab.driver(node, "mig-create", card, LARGE);
        lab.client().resource(lab.agentOf(node)).delete();
        awaitTrue(
                "a new instance",
                EVENTUALLY,
                () -> instances(lab).filter(Gpu::healthy).count() == 2);
        String created = instance(lab, LARGE);
        assertThat(Allocations.gpuOf(namespace.run(Pods.withLimits(lab, "next", limits))))
                .isEqualTo(created)
                .isNotEqualTo(gone);
        assertThat(namespace.exec("next", "nvidia-smi", "-L").expectSuccess()).contains(created);
    }
}
