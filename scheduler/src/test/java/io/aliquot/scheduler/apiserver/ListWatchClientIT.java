package io.aliquot.scheduler.apiserver;

import static io.aliquot.testing.Await.await;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.aliquot.scheduler.apiserver.client.ListWatchClient;
import io.aliquot.scheduler.apiserver.client.ResourceType;
import io.aliquot.scheduler.apiserver.reader.NodeReader;
import io.aliquot.scheduler.apiserver.reader.PodReader;
import io.aliquot.scheduler.apiserver.watch.Informer;
import io.aliquot.testing.ApiServer;
import io.fabric8.kubernetes.api.model.ListOptions;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.PodConditionBuilder;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Compares the pods and nodes of {@link ListWatchClient} with those of fabric8, in the fields that the readers use. */
class ListWatchClientIT {
    private static final String GPU = "GPU-00000000-0000-0000-0000-00000000000";
    /** With a limit, as for pages. */
    private static final ListOptions ALL =
            new ListOptionsBuilder().withLimit(10_000L).build();

    private static ApiServer server;
    private static KubernetesClient whole;
    private static ListWatchClient lists;

    @BeforeAll
    static void start(@TempDir Path folder) throws Exception {
        server = new ApiServer(folder);
        whole = new KubernetesClientBuilder()
                .withConfig(server.client().build())
                .build();
        lists = new ListWatchClient(new ApiServerClient(whole.getConfiguration()), whole.getKubernetesSerialization());
        await(
                "the namespace default",
                () -> whole.namespaces().withName("default").get() != null);
    }

    @AfterAll
    static void stop() {
        whole.close();
        server.close();
    }

    @Test
    void podsEqualThoseOfFabric8() throws IOException {
        make("plain", "");
        make("bound", "node-1");
        make("ending", "node-1");
        whole.pods()
                .inNamespace("default")
                .withName("ending")
                .withGracePeriod(600)
                .delete();
        Pod ended = make("ended", "node-2");
        whole.resource(ended)
                .editStatus(pod -> pod.edit()
                        .editOrNewStatus()
                        .withPhase("Succeeded")
                        .endStatus()
                        .build());
        Pod ready = make("ready", "node-2");
        whole.resource(ready)
                .editStatus(pod -> pod.edit()
                        .editOrNewStatus()
                        .withPhase("Running")
                        .addToConditions(new PodConditionBuilder()
                                .withType("Ready")
                                .withStatus("True")
                                .withLastTransitionTime("2026-03-01T10:20:30Z")
                                .build())
                        .endStatus()
                        .build());

        Pod rejected = make("rejected", "node-2");
        whole.resource(rejected)
                .editStatus(pod -> pod.edit()
                        .editOrNewStatus()
                        .withPhase("Failed")
                        .withReason("UnexpectedAdmissionError")
                        .withMessage("Pod was rejected: Allocate failed due to no healthy devices present")
                        .endStatus()
                        .build());

        Pod refused = make("refused", "");
        whole.resource(refused)
                .editStatus(pod -> pod.edit()
                        .editOrNewStatus()
                        .addToConditions(new PodConditionBuilder()
                                .withType("PodScheduled")
                                .withStatus("False")
                                .withReason("Unschedulable")
                                .withMessage("0/3 nodes are available: 3 Insufficient nvidia.com/gpumem.")
                                .build())
                        .endStatus()
                        .build());

        List<Pod> expected = whole.pods().inAnyNamespace().list(ALL).getItems();
        var list = new ArrayList<Pod>();

        assertThat(lists.list(ResourceType.PODS, list::add)).isNotEmpty();

        assertThat(list).hasSameSizeAs(expected).hasSizeGreaterThanOrEqualTo(5);
        assertThat(list.stream().map(ListWatchClientIT::reading).toList())
                .isEqualTo(expected.stream().map(ListWatchClientIT::reading).toList())
                .anySatisfy(reading -> assertThat(reading).contains("grace=PT10M, leavesBy=2"))
                .anySatisfy(reading -> assertThat(reading).contains("refused=Optional["))
                .anySatisfy(reading -> assertThat(reading).contains("rejected=Optional[2"))
                .anySatisfy(reading -> assertThat(reading).contains("true=True at 2026-03-01T10:20:30Z"));
        assertThat(list).as("fields that no reader uses are absent").allSatisfy(pod -> {
            assertThat(pod.getMetadata().getManagedFields())
                    .allSatisfy(write -> assertThat(write.getFieldsV1()).isNull());
            assertThat(pod.getSpec().getContainers().get(0).getImage()).isNull();
        });
    }

    /** All that any reader of this package takes of a pod. */
    private static String reading(Pod pod) {
        String conditions = pod.getStatus().getConditions().stream()
                .sorted(Comparator.comparing(condition -> condition.getType()))
                .map(condition -> condition.getType().equals("Ready") + "=" + condition.getStatus() + " at "
                        + condition.getLastTransitionTime())
                .collect(Collectors.joining(","));
        return PodReader.bound(pod) + " ask=" + PodReader.gpuRequest(pod) + " labels=" + PodReader.labels(pod)
                + " ended="
                + PodReader.ended(pod) + " rejected=" + PodReader.rejectedAt(pod) + " refused="
                + PodReader.unschedulable(pod, pod.getSpec().getSchedulerName()) + " account="
                + pod.getSpec().getServiceAccountName() + " deleted="
                + pod.getMetadata().getDeletionTimestamp() + " conditions=" + conditions;
    }

    @Test
    void nodesEqualThoseOfFabric8() throws IOException {
        for (int i = 0; i < 3; i++) {
            Node node = whole.resource(new NodeBuilder()
                            .withNewMetadata()
                            .withName("node-" + i)
                            .addToLabels("gpu", "on")
                            .addToLabels("empty", "")
                            .addToAnnotations("aliquot.io/gpus", inventory(i))
                            .endMetadata()
                            .build())
                    .create();
            whole.resource(node)
                    .editStatus(now -> now.edit()
                            .editOrNewStatus()
                            .addToAllocatable("cpu", new Quantity("3500m"))
                            .addToAllocatable("memory", new Quantity("16Gi"))
                            .addToCapacity("cpu", new Quantity("4"))
                            .addNewRuntimeHandler()
                            .withName("nvidia")
                            .withNewFeatures(true, true)
                            .endRuntimeHandler()
                            .endStatus()
                            .build());
        }

        var reader = new NodeReader(Placement.BINPACK);
        List<NodeReader.Reading> expected =
                whole.nodes().list().getItems().stream().map(reader::read).toList();
        var found = new ArrayList<NodeReader.Reading>();
        lists.list(ResourceType.NODES, node -> found.add(reader.read(node)));

        assertThat(found).hasSize(3).isEqualTo(expected).allSatisfy(reading -> {
            assertThat(reading.problem()).isEmpty();
            assertThat(reading.toString()).contains("cpuMillis=3500", "userNamespaces={nvidia=true}");
        });
    }

    private static String inventory(int node) {
        return """
            {"version":1,"visibleDevices":"{uuid}","memoryScaling":1.0,"coreScaling":1.0,"slots":10,"gpus":[\
            {"uuid":"%s%d","index":0,"model":"NVIDIA A100","memoryMiB":81920,"contextMiB":0,"numa":0,"healthy":true,\
            "mode":"shim"}]}""".formatted(GPU, node);
    }

    @Test
    void aRefusalHasTheServersMessage() {
        var config = server.client().withImpersonateUsername("nobody").build();
        try (var unauthorized = new KubernetesClientBuilder().withConfig(config).build()) {
            var client = new ListWatchClient(
                    new ApiServerClient(unauthorized.getConfiguration()), unauthorized.getKubernetesSerialization());
            for (ThrowingCallable call : List.<ThrowingCallable>of(
                    () -> client.list(ResourceType.PODS, pod -> {}), () -> client.watch(ResourceType.PODS, "1"))) {
                assertThatThrownBy(call)
                        .isInstanceOf(IOException.class)
                        .hasMessageContaining("HTTP 403 ")
                        .hasMessageContaining("User \"nobody\" cannot");
            }
        }
    }

    @Test
    void watchEventsEqualThoseOfFabric8() {
        var told = new ConcurrentHashMap<String, String>();
        try (var watched = Informer.start(
                lists,
                ResourceType.PODS,
                pod -> told.put(pod.getMetadata().getName(), reading(pod)),
                pod -> told.remove(pod.getMetadata().getName()),
                System::nanoTime)) {
            await("the list", () -> watched.waitsFor().isEmpty());
            Pod pod = make("later", "node-4");

            String expected = reading(whole.resource(pod).get());
            await("word of it", () -> expected.equals(told.get("later")));
            whole.resource(pod).withGracePeriod(0).delete();
            await("word of its end", () -> !told.containsKey("later"));
        }
    }

    private static Pod make(String name, String node) {
        return whole.resource(new PodBuilder()
                        .withNewMetadata()
                        .withNamespace("default")
                        .withName(name)
                        .addToLabels("app", name)
                        .addToAnnotations(
                                "aliquot.io/vgpu.main", GPU + "1 memory=1000Mi cores=30 policy=fixed context=0Mi\n")
                        .addToAnnotations(
                                "aliquot.io/vgpu.sidecar", GPU + "2 memory=500Mi cores=0 policy=fixed context=0Mi\n")
                        .addToAnnotations("aliquot.io/fence", "pod-a_1/1")
                        .addToAnnotations("example.com/text", "\u20ac \ud83d\ude00")
                        .endMetadata()
                        .withNewSpec()
                        .withNodeName(node.isEmpty() ? null : node)
                        .withServiceAccountName("somebody")
                        .withTerminationGracePeriodSeconds(45L)
                        .addNewInitContainer()
                        .withName("init")
                        .withImage("image")
                        .endInitContainer()
                        .addNewInitContainer()
                        .withName("sidecar")
                        .withImage("image")
                        .withRestartPolicy("Always")
                        .withNewResources()
                        .addToRequests("cpu", new Quantity("250m"))
                        .endResources()
                        .endInitContainer()
                        .addNewContainer()
                        .withName("main")
                        .withImage("image")
                        .addNewEnv()
                        .withName("A")
                        .withValue("b")
                        .endEnv()
                        .withNewResources()
                        .addToLimits("aliquot.io/vgpu", new Quantity("1"))
                        .addToLimits("nvidia.com/gpumem", new Quantity("3000"))
                        .addToRequests("cpu", new Quantity("1500m"))
                        .addToRequests("memory", new Quantity("1Gi"))
                        .endResources()
                        .endContainer()
                        .endSpec()
                        .build())
                .create();
    }
}
