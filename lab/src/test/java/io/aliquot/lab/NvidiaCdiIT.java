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
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.EnvVar;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * NVIDIA's programs on a node whose containerd injects CDI devices: {@code nvidia-ctk}, the device plugin with a CDI strategy
 * and GPU feature discovery. The driver is below {@code /run/nvidia/driver}, where the GPU Operator's driver container has
 * it; it is the simulated one, under the file names of NVIDIA's installer, with device nodes that do nothing.
 */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class NvidiaCdiIT {
    private static final String DRIVER = "/run/nvidia/driver";
    private static final String GPUS = "/var/lib/aliquot/fake-driver/gpus";

    /** Where the simulated driver looks for its GPUs. */
    private static final String GPUS_OF_A_CONTAINER = "/run/aliquot-fake-driver/gpus";

    /** Of the simulated driver. */
    private static final String OTHER_SPEC = "/etc/cdi/aliquot-fake-driver.json";

    private static final String SPEC_OF_NVIDIA_CTK = "/var/run/cdi/nvidia.json";
    private static final String SPEC_OF_THE_PLUGIN = "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json";
    private static final String IMAGE = "docker.io/aliquot-lab/nvidia-device-plugin:lab";
    private static final int CORES = 30;

    @BeforeEach
    void installDriver(Lab lab) {
        lab.onNode(node(lab), "bash", "-ec", """
                        root=$1 from=/var/lib/aliquot/fake-driver lib=$1/usr/lib/x86_64-linux-gnu
                        mkdir -p "$lib" "$root"/{usr/bin,dev}
                        for name in libcuda libnvidia-ml; do
                            cp "$from/lib/$name.so.1" "$lib/$name.so.580.0.0-fake"
                            ln -sf "$name.so.580.0.0-fake" "$lib/$name.so.1"
                        done
                        cp "$from/bin/nvidia-smi" "$root/usr/bin"
                        for name in nvidia0 nvidia1 nvidiactl nvidia-uvm nvidia-uvm-tools; do
                            [ -e "$root/dev/$name" ] || mknod -m 666 "$root/dev/$name" c 1 3
                        done
                        """, "-", DRIVER).expectSuccess();
    }

    @AfterEach
    void removeDriver(Lab lab) {
        lab.onNode(node(lab), "rm", "-rf", DRIVER, SPEC_OF_NVIDIA_CTK, SPEC_OF_THE_PLUGIN)
                .expectSuccess();
    }

    /** By the command of docs/gpu-operator.md, but as JSON. The agent takes names, device nodes, mounts and hooks from what it writes. */
    @Test
    void sharesAreLimitedWithTheSpecificationOfNvidiaCtk(Lab lab, TestNamespace namespace) throws IOException {
        String node = node(lab);
        lab.onNode(
                        node,
                        "env",
                        "ALIQUOT_FAKE_GPUS=" + GPUS,
                        lab.built("NVIDIA_CTK") + "/nvidia-ctk",
                        "cdi",
                        "generate",
                        "--driver-root=" + DRIVER,
                        "--nvidia-cdi-hook-path=" + hook(lab),
                        "--output=" + SPEC_OF_NVIDIA_CTK)
                .expectSuccess();
        addSimulatedGpus(lab, SPEC_OF_NVIDIA_CTK);
        lab.onNode(node, "mv", OTHER_SPEC, OTHER_SPEC + ".away").expectSuccess();
        try {
            Pod share = Pods.withLimits(
                    lab, "share", Map.of(Resources.MEMORY, "3000", Resources.CORES, Integer.toString(CORES)));
            share.getSpec()
                    .getContainers()
                    .getFirst()
                    .setCommand(List.of("sh", "-c", "vgpu-sample busy 600 > /tmp/busy"));
            Pod running = namespace.run(Pods.onNode(share, node));

            assertThat(namespace
                            .exec("share", "nvidia-smi", "-L")
                            .expectSuccess()
                            .lines())
                    .singleElement()
                    .asString()
                    .contains(Allocations.gpuOf(running));
            assertThat(namespace
                            .exec("share", "bash", "-c", "echo /dev/nvidia*")
                            .expectSuccess())
                    .matches("/dev/nvidia-uvm /dev/nvidia-uvm-tools /dev/nvidia[01] /dev/nvidiactl\n");
            assertThat(namespace
                            .exec("share", "readlink", "/usr/lib/x86_64-linux-gnu/libcuda.so.1")
                            .expectSuccess())
                    .as("NVIDIA's hooks have run")
                    .isEqualTo("libcuda.so.580.0.0-fake\n");
            assertThat(namespace.exec("share", "nvidia-smi").expectSuccess()).contains("MiB / 3000MiB");
            assertThat(namespace
                            .exec("share", "vgpu-sample", "alloc", "2000", "alloc", "800")
                            .expectSuccess())
                    .contains("alloc 2000 MiB: CUDA_SUCCESS", "alloc 800 MiB: CUDA_ERROR_OUT_OF_MEMORY");
            ComputeIT.awaitUtilization(namespace, "share", CORES);

            namespace.create(Pods.onNode(LimitsCheckIT.covering(lab, "covering", "true", "/opt/etc"), node));
            awaitTrue(
                    "a container that covers its limits does not start",
                    EVENTUALLY,
                    () -> CdiInjectionIT.isRefusedForItsLimits(namespace, "covering"));
        } finally {
            namespace.deleteAllPods();
            lab.onNode(node, "mv", OTHER_SPEC + ".away", OTHER_SPEC).expectSuccess();
        }
    }

    /** With the strategy that the GPU Operator sets; Aliquot's agent serves the other nodes meanwhile, and then this one. */
    @Test
    void nvidiasPluginServesTheNodeByCdiDevicesAndGivesItBack(Lab lab, TestNamespace namespace) throws IOException {
        String node = node(lab);
        try {
            label(lab, Labels.GPU + "-");
            awaitTrue(
                    "the node has left Aliquot",
                    EVENTUALLY.multipliedBy(2),
                    () -> !labels(lab).containsKey(Labels.NODE_AGENT)
                            && !annotations(lab).containsKey(Annotations.GPUS));
            namespace.run(plugin(lab));
            awaitTrue(
                    "NVIDIA's plugin serves the node",
                    EVENTUALLY,
                    () -> lab.allocatable(node, ForeignResources.NVIDIA_GPU) == 2);
            addSimulatedGpus(lab, SPEC_OF_THE_PLUGIN);

            Pod foreign = namespace.run(
                    Pods.onNode(Pods.withLimits(lab, "foreign", Map.of(ForeignResources.NVIDIA_GPU, "1")), node));
            Pod share = namespace.run(Pods.withGpuMemory(lab, "elsewhere", 3000));

            assertThat(foreign.getMetadata().getAnnotations()).isNullOrEmpty();
            assertThat(foreign.getSpec().getSchedulerName()).isEqualTo("default-scheduler");
            String held = namespace
                    .exec("foreign", "nvidia-smi", "-L")
                    .expectSuccess()
                    .replaceFirst("(?s).*UUID: ([^)]*)\\).*", "$1");
            assertThat(namespace.exec("foreign", "nvidia-smi").expectSuccess())
                    .as("one GPU, not limited")
                    .containsOnlyOnce("0MiB / 81920MiB");
            assertThat(share.getSpec().getNodeName()).isEqualTo(lab.node(NodeKind.DEFAULT_RUNTIME));
            assertThat(namespace.exec("elsewhere", "nvidia-smi").expectSuccess())
                    .contains("0MiB / 3000MiB");

            label(lab, Labels.GPU + "=" + Labels.GPU_ON);
            awaitTrue(
                    "the node's inventory names the conflict",
                    EVENTUALLY.multipliedBy(2),
                    () -> isAliquots(lab)
                            && Allocations.inventory(lab, node).conflict().contains("advertises nvidia.com/gpu"));
            namespace.delete("plugin");
            Pod ours = namespace.run(Pods.onNode(Pods.withGpuMemory(lab, "ours", 3000), node));

            assertThat(Allocations.inventory(lab, node).gpus())
                    .filteredOn(gpu -> gpu.uuid().equals(held))
                    .extracting(Gpu::heldBy)
                    .containsExactly(
                            List.of(new ForeignHolder(namespace.name() + "/foreign", ForeignResources.NVIDIA_GPU)));
            assertThat(Allocations.gpuOf(ours)).isNotEqualTo(held);
            assertThat(namespace.exec("ours", "nvidia-smi").expectSuccess()).contains("0MiB / 3000MiB");
        } finally {
            namespace.deleteAllPods();
            label(lab, Labels.GPU + "=" + Labels.GPU_ON);
            awaitTrue(
                    "the node is Aliquot's again",
                    EVENTUALLY.multipliedBy(2),
                    () -> isAliquots(lab)
                            && Allocations.inventory(lab, node).conflict().isEmpty()
                            && lab.allocatable(node, Resources.VGPU) > 0);
        }
    }

    /** Its labels are those of the agent. Node Feature Discovery, which would write them, is played by the test. */
    @Test
    void gpuFeatureDiscoveryLabelsTheNodeBesideTheAgent(Lab lab, TestNamespace namespace) {
        String node = node(lab);
        namespace.create(discovery(lab));
        namespace.await(
                "discovery",
                "ends",
                EVENTUALLY,
                pod -> List.of("Succeeded", "Failed").contains(pod.getStatus().getPhase()));
        Map<String, String> found = lab.kubectl("logs", "discovery", "--namespace", namespace.name())
                .expectSuccess()
                .lines()
                .filter(line -> line.startsWith("nvidia.com/"))
                .collect(Collectors.toMap(line -> line.split("=", 2)[0], line -> line.split("=", 2)[1]));
        assertThat(found).containsEntry("nvidia.com/gpu.count", "2");
        assertThat(labels(lab)).as("those that the agent writes").containsAllEntriesOf(found);
        Map<String, String> others = new HashMap<>(found);
        others.put("nvidia.com/gpu.count", "0");
        others.put("nvidia.com/gpu.memory", "1");
        try {
            String names = String.join(",", others.keySet());
            var metadata = Map.of("labels", others, "annotations", Map.of(FeatureDiscovery.NFD_LABELS, names));
            lab.client() // both in one write, as Node Feature Discovery does
                    .nodes()
                    .withName(node)
                    .patch(PatchContext.of(PatchType.JSON_MERGE), Serialization.asJson(Map.of("metadata", metadata)));

            awaitTrue(
                    "the agent leaves the labels to GPU feature discovery",
                    EVENTUALLY,
                    () -> String.valueOf(annotations(lab).get(Annotations.GPU_LABELS))
                            .startsWith(Annotations.NO_GPU_LABELS + "GPU feature discovery"));
            assertThat(labels(lab)).containsAllEntriesOf(others);
            namespace.run(Pods.onNode(Pods.withGpuMemory(lab, "share", 3000), node));
            assertThat(namespace.exec("share", "nvidia-smi").expectSuccess())
                    .as("the scheduler goes by the agent's inventory")
                    .contains("0MiB / 3000MiB");
            assertThat(labels(lab)).containsAllEntriesOf(others);
        } finally {
            change(lab, "annotate", FeatureDiscovery.NFD_LABELS + "-");
            label(lab, others.keySet().stream().map(name -> name + "-").toArray(String[]::new));
        }
        awaitTrue(
                "the agent writes the labels again",
                EVENTUALLY,
                () -> labels(lab).entrySet().containsAll(found.entrySet()));
    }

    private static String node(Lab lab) {
        return lab.node(NodeKind.CDI);
    }

    private static String hook(Lab lab) {
        return lab.built("NVIDIA_CTK") + "/nvidia-cdi-hook";
    }

    /** What a specification of NVIDIA's lacks: simulated GPUs are no device nodes but files. */
    private static void addSimulatedGpus(Lab lab, String spec) throws IOException {
        String script;
        try (InputStream resource = NvidiaCdiIT.class.getResourceAsStream("simulated_gpus.py")) {
            script = new String(resource.readAllBytes(), StandardCharsets.UTF_8);
        }
        lab.onNode(node(lab), "python3", "-c", script, spec, GPUS, GPUS_OF_A_CONTAINER)
                .expectSuccess();
    }

    /**
     * As the plugin's own chart makes it with {@code nvidiaDriverRoot}: it sees the driver's root, without NVIDIA's runtime.
     * Here it sees the simulated GPUs as well.
     */
    private static Pod plugin(Lab lab) {
        Pod pod = Pods.onNode(Pods.withoutGpu(lab, "plugin"), node(lab));
        pod = Pods.withHostPath(pod, DRIVER, "/driver-root");
        pod = Pods.withHostPath(pod, GPUS, GPUS_OF_A_CONTAINER);
        pod = Pods.withHostPath(pod, "/var/run/cdi", "/var/run/cdi");
        pod = Pods.withHostPath(pod, Pods.DEVICE_PLUGINS, Pods.DEVICE_PLUGINS);
        return running(
                pod,
                List.of("nvidia-device-plugin"),
                Map.of(
                        "NVIDIA_DRIVER_ROOT", DRIVER,
                        "CONTAINER_DRIVER_ROOT", "/driver-root",
                        "NVIDIA_CDI_HOOK_PATH", hook(lab),
                        "DEVICE_LIST_STRATEGY", "cdi-annotations,cdi-cri",
                        "CDI_ANNOTATION_PREFIX", "cdi.k8s.io/"));
    }

    /** As the GPU Operator makes it: NVIDIA's runtime, which its RuntimeClass names, gives it the driver. */
    private static Pod discovery(Lab lab) {
        Pod pod = Pods.onNode(Pods.withoutGpu(lab, "discovery"), node(lab));
        pod.getSpec().setRuntimeClassName("nvidia");
        pod.getSpec().setRestartPolicy("Never");
        return running(
                pod,
                List.of(
                        "gpu-feature-discovery",
                        "--oneshot",
                        "--use-node-feature-api=false",
                        "--no-timestamp",
                        "--output-file="),
                Map.of("NVIDIA_VISIBLE_DEVICES", "all"));
    }

    /** With a program of NVIDIA's in the place of its container's. */
    private static Pod running(Pod pod, List<String> command, Map<String, String> environment) {
        Container container = pod.getSpec().getContainers().getFirst();
        container.setImage(IMAGE);
        container.setCommand(command);
        container.setEnv(environment.entrySet().stream()
                .map(entry -> new EnvVar(entry.getKey(), entry.getValue(), null))
                .toList());
        return pod;
    }

    private static Map<String, String> annotations(Lab lab) {
        return lab.client().nodes().withName(node(lab)).get().getMetadata().getAnnotations();
    }

    private static Map<String, String> labels(Lab lab) {
        return lab.client().nodes().withName(node(lab)).get().getMetadata().getLabels();
    }

    private static boolean isAliquots(Lab lab) {
        return labels(lab).containsKey(Labels.NODE_AGENT) && annotations(lab).containsKey(Annotations.GPUS);
    }

    /** Also by {@code NAME-}, which removes a label. */
    private static void label(Lab lab, String... labels) {
        change(lab, "label", labels);
    }

    private static void change(Lab lab, String verb, String... arguments) {
        lab.kubectl(Stream.concat(Stream.of(verb, "--overwrite", "node", node(lab)), Arrays.stream(arguments))
                        .toArray(String[]::new))
                .expectSuccess();
    }
}
