package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.databind.JsonNode;
import io.aliquot.api.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * The scheduler's REST API, called with tokens of service accounts.
 *
 * <p>In the long tier, {@code ALIQUOT_LONG=1}: {@link GpuApiIT} tests the same through the API server.
 */
@EnabledIfEnvironmentVariable(named = "ALIQUOT_LONG", matches = "1")
@ExtendWith(LabExtension.class)
class RestApiIT {
    private static final Map<String, String> LIMITS =
            Map.of(Resources.VGPU, "1", Resources.MEMORY, "3000", Resources.CORES, "30");

    /** The longest time from the response to a PATCH until the container's processes see the new limits. */
    private static final Duration RESIZE_TIMEOUT = Duration.ofSeconds(2);

    private RestApiClient editor;
    private RestApiClient viewer;
    private RestApiClient unauthorized;

    @BeforeEach
    void createAccounts(Lab lab, TestNamespace namespace) {
        editor = RestApiClient.withToken(lab, account(lab, namespace, "editor", "get,list,patch"));
        viewer = RestApiClient.withToken(lab, account(lab, namespace, "viewer", "get,list"));
        unauthorized = RestApiClient.withToken(lab, namespace.token("default"));
    }

    @Test
    void anAccountThatMayPatchAPodResizesItAndItsProcessesSeeThatWithin2Seconds(Lab lab, TestNamespace namespace) {
        namespace.run(Pods.withLimits(lab, "grows", LIMITS));
        // Measured in the container, so that the time of an exec does not count.
        var seen = CompletableFuture.supplyAsync(
                () -> namespace.exec("grows", "bash", "-c", """
                        until nvidia-smi | grep -q 0MiB./.4000MiB; do sleep 0.05; done
                        date +%s%3N
                        cat /etc/aliquot/vgpu
                        vgpu-sample alloc 4000 alloc 1
                        """).expectSuccess());

        RestApiClient.Response response = editor.patchShares(
                namespace,
                "grows",
                "{\"container\": \"main\", \"memoryMiB\": 4000, \"cores\": 20, \"policy\": \"elastic\"}");

        long answered = System.currentTimeMillis();
        assertThat(response.code()).as("%s", response.body()).isEqualTo(200);
        List<String> lines = seen.join().lines().toList();
        assertThat(Long.parseLong(lines.get(0)) - answered).isLessThan(RESIZE_TIMEOUT.toMillis());
        assertThat(lines.get(1)).contains("memory=4000Mi", "cores=20", "policy=elastic");
        assertThat(lines).contains("alloc 4000 MiB: CUDA_SUCCESS", "alloc 1 MiB: CUDA_ERROR_OUT_OF_MEMORY");
        assertThat(TestNamespace.containerStatus(namespace.get("grows"), Pods.MAIN)
                        .getRestartCount())
                .isZero();
        assertThat(editor.get("/pods/" + namespace.name() + "/grows")
                        .body()
                        .at("/shares/0/memoryMiB")
                        .asInt())
                .isEqualTo(4000);
    }

    @Test
    void shrinkingAShareBelowItsUsageKeepsTheUsedMemoryAndRefusesFurtherAllocations(Lab lab, TestNamespace namespace) {
        namespace.run(Pods.withLimits(lab, "shrinks", LIMITS)
                .edit()
                .editSpec()
                .editFirstContainer()
                .withCommand("vgpu-sample", "alloc", "2000", "hold")
                .endContainer()
                .endSpec()
                .build());
        TestNamespace.awaitTrue(
                "2000 MiB are in use", EVENTUALLY, () -> nvidiaSmiShows(namespace, "shrinks", "2000MiB / 3000MiB"));

        assertThat(editor.patchShares(namespace, "shrinks", "{\"container\": \"main\", \"memoryMiB\": 1000}")
                        .code())
                .isEqualTo(200);

        TestNamespace.awaitTrue(
                "the used memory stays allocated",
                EVENTUALLY,
                () -> nvidiaSmiShows(namespace, "shrinks", "MiB / 1000MiB"));
        assertThat(namespace.exec("shrinks", "vgpu-sample", "alloc", "1").expectSuccess())
                .contains("alloc 1 MiB: CUDA_ERROR_OUT_OF_MEMORY");
        assertThat(TestNamespace.containerStatus(namespace.get("shrinks"), Pods.MAIN)
                        .getRestartCount())
                .isZero();
    }

    @Test
    void aResizeThatDoesNotFitOrIsNotAuthorizedChangesNothing(Lab lab, TestNamespace namespace) {
        Pod pod = namespace.run(Pods.withLimits(lab, "stays", LIMITS));
        String larger = "{\"container\": \"main\", \"memoryMiB\": 4000}";
        String tooLarge = "{\"container\": \"main\", \"memoryMiB\": 90000}";

        assertThat(viewer.patchShares(namespace, "stays", larger).code()).isEqualTo(403);
        assertThat(unauthorized.patchShares(namespace, "stays", larger).code()).isEqualTo(403);
        assertThat(unauthorized.get("/pods/" + namespace.name() + "/stays").code())
                .isEqualTo(403);
        assertThat(RestApiClient.withToken(lab, "invalid-token").get("/nodes").code())
                .isEqualTo(401);
        RestApiClient.Response refused = editor.patchShares(namespace, "stays", tooLarge);

        assertThat(refused.code()).isEqualTo(409);
        assertThat(refused.body().path("detail").asText()).contains("90000 MiB");
        assertThat(Allocations.of(namespace.get("stays"), Pods.MAIN)).isEqualTo(Allocations.of(pod, Pods.MAIN));
        assertThat(viewer.get("/pods/" + namespace.name() + "/stays")
                        .body()
                        .at("/shares/0/memoryMiB")
                        .asInt())
                .isEqualTo(3000);
    }

    @Test
    void explainQuotesKubeSchedulerForAPodWhoseNodeSelectorMatchesNoNode(Lab lab, TestNamespace namespace) {
        namespace.create(Pods.withGpuMemory(lab, "unmatched", 1000)
                .edit()
                .editSpec()
                .addToNodeSelector("disktype", "tape")
                .endSpec()
                .build());
        namespace.awaitUnschedulable("unmatched");

        JsonNode explanation =
                viewer.get("/pods/" + namespace.name() + "/unmatched/explain").body();

        assertThat(explanation.path("kubeScheduler").asText()).contains("node affinity/selector");
        assertThat(explanation.path("summary").asText())
                .contains(
                        "fit the pod's GPU requests",
                        explanation.path("kubeScheduler").asText());
    }

    @Test
    void explainTellsReadersOfAPodWhyItIsPendingAndWhatWouldHelp(Lab lab, TestNamespace namespace) {
        for (int i = 0; i < 4; i++) {
            namespace.run(Pods.withGpuMemory(lab, "holds-" + i, 60000));
        }
        namespace.create(Pods.withGpuMemory(lab, "pending", 40000));
        namespace.awaitUnschedulable("pending");
        String path = "/pods/" + namespace.name() + "/pending/explain?node="
                + lab.nodes().get(0);

        JsonNode explanation = viewer.get(path).body();

        assertThat(unauthorized.get(path).code()).isEqualTo(403);
        assertThat(explanation.path("state").asText()).isEqualTo("pending");
        assertThat(explanation.path("summary").asText()).contains("2 no GPU with 40000 MiB free", "lacks 18080 MiB");
        assertThat(explanation.path("suggestions"))
                .extracting(JsonNode::asText)
                .contains("nvidia.com/gpumem: 21920 instead of 40000");
        assertThat(explanation.path("gpus"))
                .hasSize(2)
                .allSatisfy(gpu -> assertThat(gpu.path("memoryMiB").asInt()).isEqualTo(18080));
        TestNamespace.awaitTrue(
                "an event that explains why the pod is Pending",
                TestNamespace.EVENTUALLY,
                () -> namespace.events("pending").stream()
                        .anyMatch(
                                event -> event.getReason().equals("WaitingForGPU")
                                        && event.getMessage()
                                                .contains(
                                                        "lacks 18080 MiB; would fit: nvidia.com/gpumem: 21920 instead of 40000")));
    }

    private static boolean nvidiaSmiShows(TestNamespace namespace, String pod, String text) {
        return namespace.exec(pod, "nvidia-smi").out().contains(text);
    }

    /** Creates a service account that has {@code verbs} on the namespace's pods; returns its token. */
    private static String account(Lab lab, TestNamespace namespace, String name, String verbs) {
        String[] inNamespace = {"--namespace", namespace.name()};
        lab.kubectl("create", "serviceaccount", name, inNamespace[0], inNamespace[1])
                .expectSuccess();
        lab.kubectl("create", "role", name, "--verb=" + verbs, "--resource=pods", inNamespace[0], inNamespace[1])
                .expectSuccess();
        lab.kubectl(
                        "create",
                        "rolebinding",
                        name,
                        "--role=" + name,
                        "--serviceaccount=" + namespace.name() + ":" + name,
                        inNamespace[0],
                        inNamespace[1])
                .expectSuccess();
        return namespace.token(name);
    }
}
