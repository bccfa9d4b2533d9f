package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.foreign.FeatureDiscovery;
import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.ForeignHolder;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.Vgpu;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodSpec;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/** NVIDIA's own device plugin, with time-slicing, on another node of the cluster and in an ordinary namespace. */
@ExtendWith(LabExtension.class)
@Isolated
class CoexistenceIT {
    private static final Map<String, String> ONE_GPU = Map.of(ForeignResources.NVIDIA_GPU, "1");
    private static final String PLUGIN = "nvidia-device-plugin";

    @Test
    @LongTier.Only
    void podsOfNvidiasPluginAreTheSameWithAndWithoutAliquot(Lab lab, TestNamespace namespace) {
        Map<String, String> before = specsOfFourPods(lab, namespace);
        Map<String, String> without;
        try {
            lab.aliquot("helm", "uninstall", "aliquot", "--namespace", Lab.NAMESPACE, "--wait")
                    .expectSuccess();
            without = specsOfFourPods(lab, namespace);
        } finally {
            lab.aliquot("up", "--no-build").expectSuccess();
        }
        Map<String, String> installedAgain = specsOfFourPods(lab, namespace);

        assertThat(before).isEqualTo(without);
        assertThat(installedAgain).isEqualTo(without);
        for (int i = 0; i < 3; i++) {
            Pod share = namespace.run(Pods.withGpuMemory(lab, "share-" + i, 1000));
            assertThat(share.getSpec().getNodeName()).isIn(lab.nodes());
        }
    }

    /** Runs four pods, one of them with nodeName, and deletes them; the pods' names and their specs as JSON. */
    private static Map<String, String> specsOfFourPods(Lab lab, TestNamespace namespace) {
        for (String name : List.of("a", "b", "c", "named")) {
            Pod pod = Pods.withLimits(lab, name, ONE_GPU);
            if (name.equals("named")) {
                pod.getSpec().setNodeName(lab.otherNode());
            }
            namespace.create(pod);
        }
        var specs = new TreeMap<String, String>();
        for (String name : List.of("a", "b", "c", "named")) {
            Pod pod = namespace.awaitRunning(name, EVENTUALLY);
            assertThat(pod.getSpec().getNodeName()).isEqualTo(lab.otherNode());
            assertThat(pod.getMetadata().getAnnotations()).isNullOrEmpty();
            assertThat(pod.getMetadata().getLabels()).isNullOrEmpty();
            assertThat(namespace.exec(name, "nvidia-smi", "-L").expectSuccess().lines())
                    .hasSize(1);
            specs.put(name, Serialization.asJson(pod.getSpec()));
        }
        namespace.deleteAllPods();
        return specs;
    }

    @Test
    void aNamespaceIsSwitchedToAliquotAndBackWithPodsPendingAndRunning(Lab lab, TestNamespace namespace) {
        Pod running = namespace.run(Pods.withLimits(lab, "running", ONE_GPU));
        Pod pending = namespace.create(Pods.withLimits(lab, "pending", Map.of(ForeignResources.NVIDIA_GPU, "100")));
        namespace.awaitUnschedulable("pending");
        String label = Labels.OURS + "=" + Labels.OURS_ON;

        lab.kubectl("label", "namespace", namespace.name(), label).expectSuccess();
        awaitTrue("new pods are Aliquot's", EVENTUALLY, () -> isAliquots(lab, namespace));
        Pod ours = namespace.run(Pods.withLimits(lab, "ours", ONE_GPU));

        assertThat(ours.getSpec().getNodeName()).isIn(lab.nodes());
        assertThat(Allocations.of(ours, Pods.MAIN)).hasSize(1);
        assertThat(namespace.get("running").getSpec()).isEqualTo(running.getSpec());
        assertThat(namespace.get("pending").getSpec()).isEqualTo(pending.getSpec());

        lab.kubectl("label", "namespace", namespace.name(), Labels.OURS + "-").expectSuccess();
        awaitTrue("new pods are left alone", EVENTUALLY, () -> !isAliquots(lab, namespace));
        Pod after = namespace.run(Pods.withLimits(lab, "after", ONE_GPU));

        assertThat(after.getSpec().getNodeName()).isEqualTo(lab.otherNode());
        assertThat(List.of("running", "ours"))
                .allMatch(name -> TestNamespace.containerStatus(namespace.get(name), Pods.MAIN)
                                .getRestartCount()
                        == 0)
                .allMatch(name -> TestNamespace.isRunning(namespace.get(name)));
    }

    private static boolean isAliquots(Lab lab, TestNamespace namespace) {
        return lab.client()
                .resource(Pods.withLimits(lab, "probe", ONE_GPU))
                .inNamespace(namespace.name())
                .dryRun()
                .create()
                .getSpec()
                .getSchedulerName()
                .equals("aliquot-scheduler");
    }

    /** The node joins Aliquot while a pod of NVIDIA's plugin runs on it, and leaves again. */
    @Test
    @LongTier.Only
    void aNodeChangesItsDevicePluginWhileAPodHoldsOneOfItsGpus(Lab lab, TestNamespace namespace) {
        String node = lab.otherNode();
        Pod foreign = namespace.run(Pods.withLimits(lab, "foreign", ONE_GPU));
        String held = namespace
                .exec("foreign", "nvidia-smi", "-L")
                .expectSuccess()
                .replaceFirst("(?s).*UUID: ([^)]*)\\).*", "$1");
        try {
            lab.label(node, Labels.GPU + "=" + Labels.GPU_ON);
            namespace.create(Pods.onNode(Pods.withGpuMemory(lab, "ours", 1000), node));
            awaitTrue(
                    "the node's inventory names the conflict",
                    EVENTUALLY,
                    () -> hasInventory(lab, node)
                            && Allocations.inventory(lab, node).conflict().contains("advertises nvidia.com/gpu"));
            awaitTrue(
                    "the node has no totals",
                    EVENTUALLY,
                    () -> namespace.awaitUnschedulable("ours").contains("Insufficient " + Resources.MEMORY));

            lab.label(node, Labels.OPERATOR_PLUGIN + "=" + Labels.OPERATOR_PLUGIN_OFF);

            Pod ours = namespace.awaitRunning("ours", EVENTUALLY);
            assertThat(Allocations.inventory(lab, node).gpus())
                    .filteredOn(gpu -> gpu.uuid().equals(held))
                    .extracting(Gpu::heldBy)
                    .containsExactly(
                            List.of(new ForeignHolder(namespace.name() + "/foreign", ForeignResources.NVIDIA_GPU)));
            assertThat(Allocations.of(ours, Pods.MAIN)).extracting(Vgpu::uuid).doesNotContain(held);
            namespace.create(Pods.onNode(
                    Pods.withLimits(lab, "both", Map.of(Resources.VGPU, "2", Resources.MEMORY, "1000")), node));
            assertThat(namespace.awaitUnschedulable("both"))
                    .contains("fewer than 2 GPUs that no pod of another device plugin holds");
            assertThat(namespace.get("foreign").getSpec()).isEqualTo(foreign.getSpec());

            namespace.delete("foreign");

            assertThat(Allocations.of(namespace.awaitRunning("both", EVENTUALLY), Pods.MAIN))
                    .extracting(Vgpu::uuid)
                    .contains(held);
        } finally {
            namespace.deleteAllPods();
            RuntimeClassNode.leave(lab, node);
            lab.label(node, Labels.OPERATOR_PLUGIN + "-");
        }
        assertThat(lab.client().nodes().withName(node).get().getStatus().getAllocatable())
                .doesNotContainKeys(Resources.MEMORY, Resources.MEMORY_PERCENTAGE, Resources.CORES);
        awaitTrue(
                "NVIDIA's plugin serves the node again",
                EVENTUALLY,
                () -> lab.allocatable(node, ForeignResources.NVIDIA_GPU) == 8);
        namespace.run(Pods.withLimits(lab, "again", ONE_GPU));
    }

    private static boolean hasInventory(Lab lab, String node) {
        return lab.client()
                .nodes()
                .withName(node)
                .get()
                .getMetadata()
                .getAnnotations()
                .containsKey(Annotations.GPUS);
    }

    @Test
    void nvidiasPluginRestartsUnchanged(Lab lab) {
        Pod before = plugin(lab);

        lab.client().resource(before).delete();
        awaitTrue(
                "another pod of the plugin is ready",
                EVENTUALLY,
                () -> lab.client().pods().inNamespace(PLUGIN).list().getItems().stream()
                        .anyMatch(pod -> !pod.getMetadata()
                                        .getUid()
                                        .equals(before.getMetadata().getUid())
                                && TestNamespace.isReady(pod)));

        Pod after = plugin(lab);
        assertThat(after.getSpec().getContainers().get(0).getEnv())
                .isEqualTo(before.getSpec().getContainers().get(0).getEnv())
                .anyMatch(variable -> variable.getName().equals("NVIDIA_VISIBLE_DEVICES")
                        && variable.getValue().equals("all"));
        awaitTrue(
                "the node has NVIDIA's GPUs",
                EVENTUALLY,
                () -> lab.allocatable(lab.otherNode(), ForeignResources.NVIDIA_GPU) == 8);
    }

    /**
     * Only its image sets NVIDIA_VISIBLE_DEVICES, and it names a node whose GPUs Aliquot does not share. The other nodes have the
     * same GPUs, and the labels from their agents.
     */
    @Test
    void gpuFeatureDiscoveryRunsUnchangedAndPrintsTheLabelsOfAliquotsNodes(Lab lab, TestNamespace namespace) {
        Pod discovery = Pods.withoutGpu(lab, "discovery")
                .edit()
                .editSpec()
                .withNodeName(lab.otherNode())
                .withRestartPolicy("Never")
                .editFirstContainer()
                .withImage("docker.io/aliquot-lab/nvidia-device-plugin:lab")
                .withCommand("gpu-feature-discovery")
                .withArgs("--oneshot", "--use-node-feature-api=false", "--no-timestamp", "--output-file=")
                .endContainer()
                .endSpec()
                .build();
        PodSpec stored = namespace.create(discovery).getSpec();
        namespace.await(
                "discovery",
                "ends",
                EVENTUALLY,
                pod -> List.of("Succeeded", "Failed").contains(pod.getStatus().getPhase()));

        assertThat(stored.getContainers().get(0).getEnv()).isEmpty();
        List<String> printed = lab.kubectl("logs", "discovery", "--namespace", namespace.name())
                .expectSuccess()
                .lines()
                .filter(line -> line.startsWith("nvidia.com/"))
                .sorted()
                .toList();
        assertThat(printed).contains("nvidia.com/gpu.count=2", "nvidia.com/gpu.memory=81920");
        for (String node : lab.nodes()) {
            assertThat(lab.client().nodes().withName(node).get().getMetadata().getLabels().entrySet().stream()
                            .filter(label -> FeatureDiscovery.LABELS.contains(label.getKey()))
                            .map(label -> label.getKey() + "=" + label.getValue())
                            .sorted())
                    .as(node)
                    .containsExactlyElementsOf(printed);
        }
        assertThat(lab.client().pods().inNamespace(PLUGIN).list().getItems())
                .as("by the affinity of its chart, NVIDIA's plugin runs on no node with these labels")
                .extracting(pod -> pod.getSpec().getNodeName())
                .containsOnly(lab.otherNode());
    }

    private static Pod plugin(Lab lab) {
        return lab.client().pods().inNamespace(PLUGIN).list().getItems().stream()
                .filter(TestNamespace::isReady)
                .findFirst()
                .orElseThrow();
    }
}
