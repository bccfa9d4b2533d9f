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
import org.junit.jupiter.api.extension.ExtendWith;

/** The scheduler's REST API, asked with tokens that the cluster itself has given out. */
@ExtendWith(LabExtension.class)
class RestApiIT {
    private static final Map<String, String> SHARE =
            Map.of(Resources.GPU, "1", Resources.MEMORY, "3000", Resources.CORES, "30");

    /** From the answer to the PATCH until the container's programs see it. */
    private static final Duration SEEN = Duration.ofSeconds(2);

    private RestApiClient editor;
    private RestApiClient viewer;
    private RestApiClient stranger;

    @BeforeEach
    void makeAccounts(Lab lab, TestNamespace space) {
        editor = RestApiClient.as(lab, account(lab, space, "editor", "get,list,patch"));
        viewer = RestApiClient.as(lab, account(lab, space, "viewer", "get,list"));
        stranger = RestApiClient.as(lab, space.token("default"));
    }

    @Test
    void whoMayPatchAPodResizesItAndItsProgramsSeeThatWithin2Seconds(Lab lab, TestNamespace space) {
        space.run(Pods.asking(lab, "grows", SHARE));
        // In the container, so that the time to get there doesn't count.
        var seen = CompletableFuture.supplyAsync(
                () -> space.exec("grows", "bash", "-c", """
                        until nvidia-smi | grep -q 0MiB./.4000MiB; do sleep 0.05; done
                        date +%s%3N
                        cat /etc/aliquot/vgpu
                        vgpu-sample alloc 4000 alloc 1
                        """).expectSuccess());

        RestApiClient.Answer answer = editor.patchShares(
                space,
                "grows",
                "{\"container\": \"main\", \"memoryMiB\": 4000, \"cores\": 20, \"policy\": \"elastic\"}");

        long answered = System.currentTimeMillis();
        assertThat(answer.code()).as("%s", answer.body()).isEqualTo(200);
        List<String> lines = seen.join().lines().toList();
        assertThat(Long.parseLong(lines.get(0)) - answered).isLessThan(SEEN.toMillis());
        assertThat(lines.get(1)).contains("memory=4000Mi", "cores=20", "policy=elastic");
        assertThat(lines).contains("alloc 4000 MiB: CUDA_SUCCESS", "alloc 1 MiB: CUDA_ERROR_OUT_OF_MEMORY");
        assertThat(TestNamespace.status(space.get("grows"), Pods.MAIN).getRestartCount())
                .isZero();
        assertThat(editor.get("/pods/" + space.name() + "/grows")
                        .body()
                        .at("/shares/0/memoryMiB")
                        .asInt())
                .isEqualTo(4000);
    }

    @Test
    void aShareMadeSmallerThanWhatIsInUseIsKeptAndNothingMoreIsAllocated(Lab lab, TestNamespace space) {
        space.run(Pods.asking(lab, "shrinks", SHARE)
                .edit()
                .editSpec()
                .editFirstContainer()
                .withCommand("vgpu-sample", "alloc", "2000", "hold")
                .endContainer()
                .endSpec()
                .build());
        TestNamespace.awaitTrue("2000 MiB are in use", EVENTUALLY, () -> shown(space, "shrinks", "2000MiB / 3000MiB"));

        assertThat(editor.patchShares(space, "shrinks", "{\"container\": \"main\", \"memoryMiB\": 1000}")
                        .code())
                .isEqualTo(200);

        TestNamespace.awaitTrue("what is in use stays", EVENTUALLY, () -> shown(space, "shrinks", "MiB / 1000MiB"));
        assertThat(space.exec("shrinks", "vgpu-sample", "alloc", "1").expectSuccess())
                .contains("alloc 1 MiB: CUDA_ERROR_OUT_OF_MEMORY");
        assertThat(TestNamespace.status(space.get("shrinks"), Pods.MAIN).getRestartCount())
                .isZero();
    }

    @Test
    void whatDoesNotFitOrIsNotAllowedChangesNothing(Lab lab, TestNamespace space) {
        Pod pod = space.run(Pods.asking(lab, "stays", SHARE));
        String more = "{\"container\": \"main\", \"memoryMiB\": 4000}";
        String tooMuch = "{\"container\": \"main\", \"memoryMiB\": 90000}";

        assertThat(viewer.patchShares(space, "stays", more).code()).isEqualTo(403);
        assertThat(stranger.patchShares(space, "stays", more).code()).isEqualTo(403);
        assertThat(stranger.get("/pods/" + space.name() + "/stays").code()).isEqualTo(403);
        assertThat(RestApiClient.as(lab, "nobody's").get("/nodes").code()).isEqualTo(401);
        RestApiClient.Answer refused = editor.patchShares(space, "stays", tooMuch);

        assertThat(refused.code()).isEqualTo(409);
        assertThat(refused.body().path("detail").asText()).contains("90000 MiB");
        assertThat(Allocations.of(space.get("stays"), Pods.MAIN)).isEqualTo(Allocations.of(pod, Pods.MAIN));
        assertThat(viewer.get("/pods/" + space.name() + "/stays")
                        .body()
                        .at("/shares/0/memoryMiB")
                        .asInt())
                .isEqualTo(3000);
    }

    @Test
    void aPodThatNoNodesLabelsSuitIsToldWhatKubeSchedulerFound(Lab lab, TestNamespace space) {
        space.create(Pods.memory(lab, "picky", 1000)
                .edit()
                .editSpec()
                .addToNodeSelector("disktype", "tape")
                .endSpec()
                .build());
        space.awaitUnschedulable("picky");

        JsonNode story = viewer.get("/pods/" + space.name() + "/picky/explain").body();

        assertThat(story.path("kubeScheduler").asText()).contains("node affinity/selector");
        assertThat(story.path("summary").asText())
                .contains("hold it", story.path("kubeScheduler").asText());
    }

    @Test
    void whoMayGetAPodIsToldWhyItWaitsAndWhatWouldHelp(Lab lab, TestNamespace space) {
        for (int i = 0; i < 4; i++) {
            space.run(Pods.memory(lab, "holds-" + i, 60000));
        }
        space.create(Pods.memory(lab, "waits", 40000));
        space.awaitUnschedulable("waits");
        String path =
                "/pods/" + space.name() + "/waits/explain?node=" + lab.nodes().get(0);

        JsonNode story = viewer.get(path).body();

        assertThat(stranger.get(path).code()).isEqualTo(403);
        assertThat(story.path("state").asText()).isEqualTo("waiting");
        assertThat(story.path("summary").asText()).contains("2 no GPU with 40000 MiB free", "lacks 18080 MiB");
        assertThat(story.path("remedies"))
                .extracting(JsonNode::asText)
                .contains("nvidia.com/gpumem: 21920 instead of 40000");
        assertThat(story.path("gpus"))
                .hasSize(2)
                .allSatisfy(gpu -> assertThat(gpu.path("memoryMiB").asInt()).isEqualTo(18080));
        TestNamespace.awaitTrue(
                "an event that says why it waits",
                TestNamespace.EVENTUALLY,
                () -> space.events("waits").stream()
                        .anyMatch(
                                event -> event.getReason().equals("WaitingForGPU")
                                        && event.getMessage()
                                                .contains(
                                                        "lacks 18080 MiB; would fit: nvidia.com/gpumem: 21920 instead of 40000")));
    }

    private static boolean shown(TestNamespace space, String pod, String text) {
        return space.exec(pod, "nvidia-smi").out().contains(text);
    }

    /** A service account that may do this with the pods of the space; returns its token. */
    private static String account(Lab lab, TestNamespace space, String name, String verbs) {
        String[] in = {"--namespace", space.name()};
        lab.kubectl("create", "serviceaccount", name, in[0], in[1]).expectSuccess();
        lab.kubectl("create", "role", name, "--verb=" + verbs, "--resource=pods", in[0], in[1])
                .expectSuccess();
        lab.kubectl(
                        "create",
                        "rolebinding",
                        name,
                        "--role=" + name,
                        "--serviceaccount=" + space.name() + ":" + name,
                        in[0],
                        in[1])
                .expectSuccess();
        return space.token(name);
    }
}
