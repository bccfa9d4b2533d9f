package io.aliquot.scheduler.extensionapi;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth.Unhealthy;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Priority;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.pods.Vgpus;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageHistory;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus;
import io.aliquot.scheduler.cluster.Cluster.PodState;
import io.aliquot.scheduler.cluster.FakeCluster;
import io.aliquot.scheduler.extensionapi.ObjectsProgram.Changes;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuUsage;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.ShareUsage;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes;
import io.aliquot.scheduler.extensionapi.objects.GpuPod.ParsedRequest;
import io.aliquot.scheduler.extensionapi.objects.GpuShares;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.ContainerShare;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.ledger.Quota;
import io.aliquot.scheduler.ledger.QuotaResource;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.pending.PreemptionRank;
import io.aliquot.scheduler.pending.UnboundPod;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.OptionalLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.context.ConfigurableApplicationContext;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The objects over HTTP, as the API server would ask for them after it has authorized a caller. */
class ObjectsHttpTest {
    private static final String ROOT = "/apis/gpu.aliquot.io/v1alpha1";
    private static final String TEAM = ROOT + "/namespaces/team/gpushares";
    private static final String TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,"
            + "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    private static final String MERGE = "application/merge-patch+json";

    private final HttpClient client = HttpClient.newHttpClient();
    private ConfigurableApplicationContext context;
    private Changes changes;

    @BeforeEach
    void start() {
        context = ObjectsProgram.start();
        changes = context.getBean(Changes.class);
    }

    @AfterEach
    void stop() {
        context.close();
    }

    @Test
    void aResizeRespectsWhatThePodsNamespaceAllows() throws Exception {
        String share = ROOT + "/namespaces/other/gpushares/p1-4";
        Map<String, String> refused = Map.of(
                "\"policy\":\"none\"", "may not have the core policy none; allowed: fixed, elastic",
                "\"memoryMiB\":14000,\"cores\":0", "must have cores");
        for (String query : List.of("?dryRun=All", "")) {
            for (Map.Entry<String, String> change : refused.entrySet()) {
                HttpResponse<String> answer = patch(share + query, MERGE, main(change.getKey()));
                assertThat(answer.statusCode()).as(answer.body()).isEqualTo(422);
                assertThat(answer.body()).contains(change.getValue());
            }
            assertThat(patch(share + query, MERGE, main("\"cores\":10,\"policy\":\"elastic\""))
                            .statusCode())
                    .isEqualTo(200);
        }
        assertThat(ok(share + "/explain").path("allowed").asString())
                .isEqualTo("core policies fixed, elastic; priorities low; a share must request nvidia.com/gpucores");
        assertThat(ok(TEAM + "/p1-2/explain").path("allowed").asString()).isEmpty();
    }

    @Test
    void aGpushareIsAKubernetesObject() throws Exception {
        assertThat(ok(TEAM + "/p1-2").toString())
                .isEqualTo("{\"apiVersion\":\"gpu.aliquot.io/v1alpha1\",\"kind\":\"GpuShare\",\"metadata\":{"
                        + "\"name\":\"p1-2\",\"namespace\":\"team\",\"uid\":\"uid-p1-2\",\"resourceVersion\":\"103\","
                        + "\"creationTimestamp\":\"1970-01-01T00:01:43Z\",\"labels\":"
                        + ok(TEAM + "/p1-2").at("/metadata/labels")
                        + "},\"spec\":{\"containers\":[{\"name\":\"main\",\"memoryMiB\":15000,\"cores\":20,"
                        + "\"policy\":\"fixed\"}]},\"status\":{\"phase\":\"Bound\",\"nodeName\":\"n1\",\"priority\":1,"
                        + "\"gpus\":1,\"memoryMiB\":15000,\"cores\":20,\"held\":[{\"gpu\":\"" + Gpus.uuid(1, 0)
                        + "\",\"memoryMiB\":15000,\"cores\":20,\"slots\":1,\"wholeCard\":false}],\"containers\":[{\"name\":\"main\",\"gpus\":[{"
                        + "\"uuid\":\"" + Gpus.uuid(1, 0) + "\",\"memoryMiB\":15000,\"cores\":20,\"policy\":\"fixed\","
                        + "\"priority\":\"normal\",\"wholeCard\":false}]}]}}");
        assertThat(ok(TEAM + "/p1-2").at("/metadata/labels/tier").asString()).isEqualTo("a");
        JsonNode missing = status(404, TEAM + "/nothing");
        assertThat(missing.get("reason").asString()).isEqualTo("NotFound");
        assertThat(missing.get("message").asString()).isEqualTo("gpushares.gpu.aliquot.io \"nothing\" not found");
    }

    @Test
    void aQuotaShowsWhatIsUsedOfIt() throws Exception {
        Ledger ledger = context.getBean(Ledger.class);
        ledger.putQuota(new Quota("team", "gpus", "uid", Map.of(QuotaResource.MEMORY, 200_000L), List.of()));
        ledger.putQuota(new Quota("other", "gpus", "uid", Map.of(QuotaResource.VGPUS, 5L), List.of()));
        String quotas = ROOT + "/namespaces/team/gpuquotas";
        assertThat(ok(quotas + "/gpus").get("status").toString())
                .isEqualTo("{\"memoryMiB\":{\"hard\":200000,\"used\":135000}}");
        assertThat(ok(quotas).get("items").size()).isEqualTo(1);
        assertThat(ok(ROOT + "/gpuquotas").get("items").size()).isEqualTo(2);
        assertThat(JsonMapper.shared()
                        .readTree(get(ROOT + "/gpuquotas", TABLE).body())
                        .at("/rows")
                        .valueStream()
                        .map(row -> row.get("cells").toString()))
                .containsExactly("[\"gpus\",\"-\",\"-\",\"3/5\"]", "[\"gpus\",\"135000/200000Mi\",\"-\",\"-\"]");
        ledger.removeQuota("team", "gpus");
        status(404, quotas + "/gpus");
        assertThat(ok(quotas).get("items").size()).isZero();
    }

    @Test
    void nodesAndGpusShowWhatIsAllocated() throws Exception {
        JsonNode node = ok(ROOT + "/gpunodes/n1");
        assertThat(node.at("/metadata/resourceVersion").asString()).isEqualTo("101");
        assertThat(node.at("/status/memoryMiB").toString())
                .isEqualTo("{\"total\":80000,\"allocated\":60000,\"free\":20000}");
        assertThat(node.at("/status/shares").asInt()).isEqualTo(4);
        assertThat(node.at("/status/strandedMemoryMiB").asInt()).isEqualTo(20_000);
        assertThat(node.at("/status/conditions").toString())
                .isEqualTo("[{\"type\":\"ClusterAutoscalerReady\",\"status\":\"False\","
                        + "\"reason\":\"NoKnownGpuResource\",\"message\":\"why\"}]");
        assertThat(node.at("/status/schedulable").asBoolean()).isTrue();
        String name = node.at("/status/gpus/1").asString();
        assertThat(name).isEqualTo(Gpus.uuid(1, 1).toLowerCase(java.util.Locale.ROOT));
        JsonNode gpu = ok(ROOT + "/gpus/" + name);
        assertThat(gpu.at("/status/uuid").asString()).isEqualTo(Gpus.uuid(1, 1));
        assertThat(gpu.at("/status/cores").toString()).isEqualTo("{\"total\":100,\"allocated\":40,\"free\":60}");
        status(404, ROOT + "/gpus/gpu-0");
        status(404, ROOT + "/gpunodes/n9");
    }

    /** Regression: a node replaced, and later removed, each GPU of another node that it listed. */
    @Test
    void aGpuBelongsToTheFirstNodeThatListsIt() throws Exception {
        FakeCluster server = context.getBean(FakeCluster.class);
        String gpu = ROOT + "/gpus/" + GpuNodes.name(Gpus.uuid(1, 0));
        JsonNode before = ok(gpu);
        changes.node(9, Gpus.gpu(1, 0, 40_000), Gpus.gpu(9, 1, 40_000));
        assertThat(refreshed(gpu)).isEqualTo(before);
        assertThat(ok(ROOT + "/gpunodes/n9").at("/status/gpus").toString())
                .isEqualTo("[\"" + GpuNodes.name(Gpus.uuid(9, 1)) + "\"]");
        changes.node(9, Gpus.gpu(9, 1, 40_000));
        assertThat(refreshed(gpu)).isEqualTo(before);
        changes.node(9, Gpus.gpu(1, 0, 40_000));
        assertThat(refreshed(gpu)).isEqualTo(before);
        assertThat(server.warnings)
                .hasSize(2)
                .containsOnly("n9 GpuOfAnotherNode: its inventory lists 1 GPUs of other nodes, such as GPU "
                        + Gpus.uuid(1, 0) + ", which is node n1's; the aggregated API shows them for these");
        changes.node(1, Gpus.gpu(1, 1, 40_000));
        refreshed(ROOT + "/gpunodes/n1");
        assertThat(refreshed(gpu).at("/status/nodeName").asString()).isEqualTo("n9");
    }

    /** Waits until the server renews its objects, which it does not do for each request, and reads the answer. */
    private JsonNode refreshed(String path) throws Exception {
        Thread.sleep(250);
        return ok(path);
    }

    @Test
    void aReservationIsPartOfItsNode() throws Exception {
        Ledger ledger = context.getBean(Ledger.class);
        ledger.reserve(changes.id("team", "soon"), "n1", Gpus.request("APP:main: gpumem=100"));
        JsonNode reservation = ok(ROOT + "/gpunodes/n1").at("/status/reservations/0");
        assertThat(reservation.get("state").asString()).isEqualTo("expected");
        assertThat(reservation.at("/gpus/0/memoryMiB").asInt()).isEqualTo(100);
        ledger.observeEnded("uid-soon");
        assertThat(ok(ROOT + "/gpunodes/n1").at("/status/reservations").size()).isZero();
    }

    @Test
    void coresWithoutALimitAreCalledUnlimitedAndThoseOfAnElasticContainerAreNot() throws Exception {
        changes.bound(
                "team", "free", "n1", Map.of(), BoundPods.main(Gpus.uuid(1, 0), new GpuAmount(1000, 0, 1, false)));
        assertThat(row(TEAM + "/free").toString())
                .startsWith("[\"free\",\"Bound\",\"n1\",\"-/1000Mi\",\"-/unlimited\",1,");

        held("idle-only", new Vgpu(Gpus.uuid(1, 1), 1000, 0, CorePolicy.ELASTIC, Priority.NORMAL, 0, false));
        assertThat(row(TEAM + "/idle-only").toString())
                .startsWith("[\"idle-only\",\"Bound\",\"n1\",\"-/1000Mi\",\"-/0%\",1,");
        held("none", new Vgpu(Gpus.uuid(1, 1), 1000, 10, CorePolicy.NONE, Priority.NORMAL, 0, false));
        assertThat(row(TEAM + "/none").toString())
                .startsWith("[\"none\",\"Bound\",\"n1\",\"-/1000Mi\",\"-/unlimited\",1,");
    }

    private void held(String pod, Vgpu vgpu) {
        changes.bound(
                "team", pod, "n1", Map.of(), new ContainerShare("main", ContainerKind.APP, new Vgpus(List.of(vgpu))));
    }

    @Test
    void usageIsBlankUntilTheAgentReportsIt() throws Exception {
        assertThat(row(TEAM + "/p1-2").toString())
                .startsWith("[\"p1-2\",\"Bound\",\"n1\",\"-/15000Mi\",\"-/20%\",1,\"\",");
        var figures = context.getBean(Figures.class);
        figures.containers.put(
                "uid-p1-2/main/" + Gpus.uuid(1, 0),
                new ShareUsage(1234L, 15, 5, 12, 1, 0L, 2.5, "2026-11-26T20:00:00Z"));
        figures.gpus.put(Gpus.uuid(1, 0), new GpuUsage(2000L, 0L, 15, 40, 200));
        assertThat(row(TEAM + "/p1-2").toString())
                .startsWith("[\"p1-2\",\"Bound\",\"n1\",\"1234/15000Mi\",\"15/20%\",1,");
        assertThat(ok(TEAM + "/p1-2")
                        .at("/status/containers/0/gpus/0/usage/memoryMiB")
                        .asInt())
                .isEqualTo(1234);
        assertThat(row(TEAM + "/p1-2").get(7).asString()).as("lent").isEqualTo("5%");
        assertThat(row(TEAM + "/p1-2").get(8).asString()).as("borrowed").isEqualTo("12%");
        assertThat(ok(TEAM + "/p1-2").at("/status/usage/throttledSeconds").asDouble())
                .isEqualTo(2.5);
        String gpu = ROOT + "/gpus/" + GpuNodes.name(Gpus.uuid(1, 0));
        assertThat(row(gpu).get(4).asString()).isEqualTo("2000/30000/40000Mi");
    }

    @Test
    void kubectlGetsATable() throws Exception {
        HttpResponse<String> answer = get(ROOT + "/gpushares", TABLE);
        JsonNode table = JsonMapper.shared().readTree(answer.body());
        assertThat(table.get("kind").asString()).isEqualTo("Table");
        assertThat(table.get("rows").size()).isEqualTo(12);
        assertThat(table.at("/rows/0/object/kind").asString()).isEqualTo("PartialObjectMetadata");
        assertThat(table.at("/rows/0/object/metadata/namespace").asString()).isEqualTo("other");
        assertThat(table.at("/columnDefinitions/6").toString())
                .isEqualTo("{\"name\":\"Reason\",\"type\":\"string\",\"format\":\"\",\"description\":\"Why a pod is"
                        + " Pending\",\"priority\":1}");
        assertThat(row(ROOT + "/gpunodes/n1").toString())
                .startsWith("[\"n1\",2,2,\"core-memory\",\"60000/80000Mi\",\"80/200%\",4,\"20000Mi\",\"\",");
        JsonNode whole = JsonMapper.shared()
                .readTree(get(TEAM + "?includeObject=Object", TABLE).body());
        assertThat(whole.at("/rows/0/object/kind").asString()).isEqualTo("GpuShare");
        JsonNode none = JsonMapper.shared()
                .readTree(get(TEAM + "?includeObject=None", TABLE).body());
        assertThat(none.get("rows").get(0).has("object")).isFalse();
        assertThat(get(TEAM, "application/vnd.kubernetes.protobuf").statusCode())
                .isEqualTo(406);
        assertThat(get(TEAM, "application/vnd.kubernetes.protobuf,application/json")
                        .statusCode())
                .isEqualTo(200);
    }

    @Test
    void allPagesTogetherAreTheList() throws Exception {
        var names = new ArrayList<String>();
        String next = "";
        int pages = 0;
        String version = "";
        do {
            JsonNode page = ok(ROOT + "/gpushares?limit=5" + (next.isEmpty() ? "" : "&continue=" + next));
            page.get("items")
                    .forEach(share -> names.add(share.at("/metadata/namespace").asString() + "/"
                            + share.at("/metadata/name").asString()));
            if (pages == 0) {
                version = page.at("/metadata/resourceVersion").asString();
                assertThat(page.at("/metadata/remainingItemCount").asInt()).isEqualTo(7);
                // What comes and goes between two pages neither repeats nor hides another object.
                changes.pending("p9-last", Gpus.request("APP:main: gpumem=100"), "");
                changes.ended("other", "p1-4");
            }
            assertThat(page.at("/metadata/resourceVersion").asString()).isEqualTo(version);
            next = page.at("/metadata/continue").asString("");
            pages++;
        } while (!next.isEmpty());
        assertThat(pages).isEqualTo(3);
        assertThat(names).hasSize(13).doesNotHaveDuplicates().isSorted().contains("team/p9-last");
        assertThat(status(400, ROOT + "/gpushares?continue=x").get("message").asString())
                .contains("metadata.continue");
    }

    /** Of an object outside of the listed namespace, an exception of the map that was logged with its stack trace. */
    @Test
    void aForgedTokenIs400() throws Exception {
        String version = Long.toString(changes.version().get());
        for (String forged : List.of(
                "1/%s/zebra/p1-1",
                "1/%s/a",
                "1/%s/team\uffff",
                "1/%s/team/\uffff\uffff",
                "1/-1/team/p1-1",
                "1/99999999999999999999/team/p1-1",
                "2/%s/team/p1-1",
                "1/%s",
                "\u0000")) {
            byte[] token = forged.replace("%s", version).getBytes(StandardCharsets.UTF_8);
            String encoded = Base64.getUrlEncoder().withoutPadding().encodeToString(token);
            assertThat(status(400, TEAM + "?limit=5&continue=" + encoded)
                            .get("message")
                            .asString())
                    .as(forged)
                    .contains("metadata.continue");
        }
    }

    @Test
    void anExpiredTokenIs410() throws Exception {
        String next = ok(TEAM + "?limit=5").at("/metadata/continue").asString();
        // The watch on pods had to list again.
        context.getBean(GpuShares.class).listed(changes.version().addAndGet(10));
        JsonNode refusal = status(410, TEAM + "?limit=5&continue=" + next);
        assertThat(refusal.get("reason").asString()).isEqualTo("Expired");
    }

    @Test
    void selectorsSelect() throws Exception {
        List<String> selections = """
            labelSelector=tier=a                          | 6
            labelSelector=tier==a,app=train               | 6
            labelSelector=tier!=a                         | 6
            labelSelector=tier in (a, b)                  | 12
            labelSelector=tier notin (a)                  | 6
            labelSelector=app                             | 12
            labelSelector=!app                            | 0
            labelSelector=missing notin (a)               | 12
            fieldSelector=metadata.name=p1-2              | 1
            fieldSelector=metadata.namespace=other        | 3
            fieldSelector=spec.nodeName=n1                | 4
            fieldSelector=spec.nodeName!=n1               | 8
            fieldSelector=status.phase=Pending            | 0
            fieldSelector=spec.nodeName=n1,metadata.name=p1-2 | 1
            """.lines().toList();
        for (String selection : selections) {
            String[] of = selection.split(" *\\| *", -1);
            assertThat(ok(ROOT + "/gpushares?" + encoded(of[0])).get("items").size())
                    .as(selection)
                    .isEqualTo(Integer.parseInt(of[1]));
        }
    }

    @Test
    void malformedParametersAre400() throws Exception {
        for (String query : List.of(
                "labelSelector=a b",
                "labelSelector=a in (b",
                "labelSelector=,",
                "labelSelector=a=b=c",
                "fieldSelector=spec.other=1",
                "fieldSelector=metadata.name",
                "limit=-1",
                "limit=x",
                "resourceVersion=x",
                "resourceVersion=1&resourceVersionMatch=Never",
                "includeObject=All",
                "watch=1&sendInitialEvents=true")) {
            String sent = query.contains("&") ? query : encoded(query);
            assertThat(status(400, ROOT + "/gpushares?" + sent).get("reason").asString())
                    .as(query)
                    .isEqualTo("BadRequest");
        }
    }

    @Test
    void aListHasTheNewestVersionAndNoOtherOne() throws Exception {
        assertThat(ok(TEAM + "?resourceVersion=0")
                        .at("/metadata/resourceVersion")
                        .asString())
                .isEqualTo(Long.toString(changes.version().get()));
        assertThat(status(504, TEAM + "?resourceVersion=999999")
                        .at("/details/causes/0/reason")
                        .asString())
                .isEqualTo("ResourceVersionTooLarge");
        status(410, TEAM + "?resourceVersion=1&resourceVersionMatch=Exact");
    }

    @Test
    void aPendingPodIsListedAndExplainedWhenItIsReadAlone() throws Exception {
        changes.pending("big", Gpus.request("APP:main: gpumem=12000 gpucores=10"), "0/3 nodes are available");
        JsonNode listed = ok(TEAM + "?fieldSelector=status.phase%3DPending").at("/items/0");
        assertThat(listed.at("/status/reason").asString()).isEqualTo("0/3 nodes are available");
        assertThat(listed.at("/status/containers/0/requested").toString())
                .isEqualTo("{\"gpus\":1,\"memoryMiB\":12000,\"cores\":10,\"wholeCard\":false}");
        assertThat(ok(TEAM + "/big").at("/status/reason").asString())
                .startsWith("0/3 nodes fit: 3 no GPU with 12000 MiB free; closest is n1");
        assertThat(patch(TEAM + "/big", MERGE, main("\"memoryMiB\":1")).statusCode())
                .isEqualTo(422);
    }

    @Test
    void aMergePatchResizes() throws Exception {
        var server = context.getBean(FakeCluster.class);
        HttpResponse<String> answer = patch(TEAM + "/p3-3", MERGE, main("\"memoryMiB\":25000,\"policy\":\"elastic\""));
        assertThat(answer.statusCode()).as(answer.body()).isEqualTo(200);
        JsonNode share = JsonMapper.shared().readTree(answer.body());
        assertThat(share.at("/spec/containers/0").toString())
                .isEqualTo("{\"name\":\"main\",\"memoryMiB\":25000,\"cores\":20,\"policy\":\"elastic\"}");
        assertThat(server.sent).hasSize(1);
        assertThat(server.sent.get(0).annotations().get("aliquot.io/vgpu.main"))
                .contains(Gpus.uuid(3, 1) + " memory=25000Mi cores=20 policy=elastic");
        // What the share grows by counts as allocated before the watch reports it.
        assertThat(ok(ROOT + "/gpus/" + GpuNodes.name(Gpus.uuid(3, 1)))
                        .at("/status/memoryMiB/free")
                        .asInt())
                .isZero();
        // The fake API server does not report the outcome of the write.
        HttpResponse<String> again = patch(TEAM + "/p3-3", MERGE, main("\"cores\":1"));
        assertThat(again.statusCode()).isEqualTo(503);
        assertThat(again.headers().firstValue("Retry-After")).hasValue("1");
        assertThat(again.body()).contains("the outcome of an earlier resize is not known yet");
        assertThat(server.sent).hasSize(1);
    }

    @Test
    void aResizeThatTheLedgerRefusesIs422WithItsSentence() throws Exception {
        changes.bound(
                "team", "whole", "n4", Map.of(), BoundPods.main(Gpus.uuid(4, 0), new GpuAmount(40_000, 100, 1, true)));
        changes.node(4, Gpus.gpu(4, 0, 40_000));
        assertThat(invalid("p3-2", "\"memoryMiB\":25001")).contains("25001 MiB");
        assertThat(invalid("p3-2", "\"memoryMiB\":40001")).contains("40001 MiB");
        assertThat(invalid("whole", "\"memoryMiB\":1000")).contains("a whole card cannot be resized");
        assertThat(context.getBean(FakeCluster.class).sent).isEmpty();
    }

    private String invalid(String pod, String fields) throws Exception {
        HttpResponse<String> answer = patch(TEAM + "/" + pod, MERGE, main(fields));
        assertThat(answer.statusCode()).as(answer.body()).isEqualTo(422);
        JsonNode status = JsonMapper.shared().readTree(answer.body());
        assertThat(status.at("/details/causes/0/field").asString()).isEqualTo("spec.containers");
        return status.get("message").asString();
    }

    /** The second patch asks for what the watch still reports, and no longer is. */
    @Test
    void aPatchFollowsAnotherBeforeTheWatchHasReportedThat() throws Exception {
        var server = context.getBean(FakeCluster.class);
        server.state = new PodState.Bound(BoundPods.of(
                changes.id("team", "p3-3"),
                "n3",
                9000,
                BoundPods.main(Gpus.uuid(3, 1), new GpuAmount(16_000, 20, 1, false))));
        assertThat(patch(TEAM + "/p3-3", MERGE, main("\"memoryMiB\":16000")).statusCode())
                .isEqualTo(200);

        HttpResponse<String> back = patch(TEAM + "/p3-3", MERGE, main("\"memoryMiB\":15000"));

        assertThat(back.statusCode()).as(back.body()).isEqualTo(200);
        assertThat(server.sent).hasSize(2);
        assertThat(server.sent.get(1).version()).isEqualTo(9000);
        assertThat(server.sent.get(1).annotations().get("aliquot.io/vgpu.main")).contains(" memory=15000Mi ");
    }

    @Test
    void theResourceVersionIsAPrecondition() throws Exception {
        String version = ok(TEAM + "/p2-2").at("/metadata/resourceVersion").asString();
        HttpResponse<String> stale = patch(
                TEAM + "/p2-2",
                MERGE,
                "{\"metadata\":{\"resourceVersion\":\"7\"},\"spec\":{\"containers\":[{\"name\":\"main\",\"cores\":1}]}}");
        assertThat(stale.statusCode()).isEqualTo(409);
        assertThat(JsonMapper.shared().readTree(stale.body()).get("reason").asString())
                .isEqualTo("Conflict");
        assertThat(context.getBean(FakeCluster.class).sent).isEmpty();
        HttpResponse<String> current = patch(
                TEAM + "/p2-2",
                MERGE,
                "{\"metadata\":{\"resourceVersion\":\"" + version
                        + "\"},\"spec\":{\"containers\":[{\"name\":\"main\",\"cores\":1}]}}");
        assertThat(current.statusCode()).as(current.body()).isEqualTo(200);
        assertThat(context.getBean(FakeCluster.class).sent.get(0).version()).isEqualTo(Long.parseLong(version));
    }

    @Test
    void aDryRunChangesNothingAndSaysWhatWouldHappen() throws Exception {
        HttpResponse<String> fits = patch(TEAM + "/p2-2?dryRun=All", MERGE, main("\"memoryMiB\":25000"));
        assertThat(fits.statusCode()).as(fits.body()).isEqualTo(200);
        assertThat(JsonMapper.shared()
                        .readTree(fits.body())
                        .at("/spec/containers/0/memoryMiB")
                        .asInt())
                .isEqualTo(25_000);
        HttpResponse<String> tooMuch = patch(TEAM + "/p2-2?dryRun=All", MERGE, main("\"memoryMiB\":25001"));
        assertThat(tooMuch.statusCode()).isEqualTo(422);
        assertThat(tooMuch.body()).contains("spec.containers");
        assertThat(context.getBean(FakeCluster.class).sent).isEmpty();
        assertThat(ok(ROOT + "/gpunodes/n2").at("/status/memoryMiB/allocated").asInt())
                .isEqualTo(60_000);
        assertThat(patch(TEAM + "/p2-2?dryRun=Some", MERGE, main("\"cores\":1")).statusCode())
                .isEqualTo(400);
    }

    @Test
    void ifOneOfTwoContainersDoesNotFitNothingChanges() throws Exception {
        changes.bound(
                "team",
                "two",
                "n1",
                Map.of(),
                container("one", Gpus.uuid(1, 0), 1000),
                container("two", Gpus.uuid(1, 1), 1000));
        HttpResponse<String> answer = patch(
                TEAM + "/two",
                MERGE,
                "{\"spec\":{\"containers\":[{\"name\":\"one\",\"memoryMiB\":2000},{\"name\":\"two\",\"memoryMiB\":39000}]}}");
        assertThat(answer.statusCode()).as(answer.body()).isEqualTo(422);
        assertThat(context.getBean(FakeCluster.class).sent).isEmpty();
        assertThat(ok(TEAM + "/two").at("/spec/containers/0/memoryMiB").asInt()).isEqualTo(1000);
        assertThat(ok(ROOT + "/gpunodes/n1").at("/status/memoryMiB/allocated").asInt())
                .isEqualTo(62_000);
    }

    @Test
    void aFieldThatIsNotOursToChangeIs422WithItsPath() throws Exception {
        List<String> refused = """
            {"metadata":{"labels":{"a":"b"}}}                             | metadata.labels
            {"metadata":{"annotations":{"a":"b"}}}                        | metadata.annotations
            {"status":{"phase":"Pending"}}                                | status
            {"kind":"Pod"}                                                | kind
            {"spec":{"nodeName":"n2"}}                                    | spec.nodeName
            {"spec":{"containers":[{"name":"main","gpu":"x"}]}}           | spec.containers[0].gpu
            {"spec":{"containers":[{"name":"other","cores":1}]}}          | spec.containers[0].name
            {"spec":{"containers":[{"cores":1}]}}                         | spec.containers[0].name
            {"spec":{"containers":[{"name":"main","cores":101}]}}         | spec.containers[0].cores
            {"spec":{"containers":[{"name":"main","cores":1.5}]}}         | spec.containers[0].cores
            {"spec":{"containers":[{"name":"main","memoryMiB":0}]}}       | spec.containers[0].memoryMiB
            {"spec":{"containers":[{"name":"main","memoryMiB":1e999999999}]}} | spec.containers[0].memoryMiB
            {"spec":{"containers":[{"name":"main","policy":"best"}]}}     | spec.containers[0].policy
            {"spec":{"containers":[{"name":"main"},{"name":"main"}]}}     | spec.containers[1].name
            {"spec":{"containers":{}}}                                    | spec.containers
            {"spec":null}                                                 | spec.containers
            """.lines().toList();
        for (String change : refused) {
            String[] of = change.split(" *\\| *", -1);
            HttpResponse<String> answer = patch(TEAM + "/p2-2", MERGE, of[0]);
            assertThat(answer.statusCode()).as(change + answer.body()).isEqualTo(422);
            JsonNode status = JsonMapper.shared().readTree(answer.body());
            assertThat(status.at("/details/causes/0/field").asString())
                    .as(change)
                    .isEqualTo(of[1]);
        }
        assertThat(context.getBean(FakeCluster.class).sent).isEmpty();
    }

    @Test
    void otherPatchTypesAre415WithWhatToWriteInstead() throws Exception {
        // 26 operations of a JSON patch that each copied the whole object ended the process.
        for (String type : List.of(
                "application/json-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml")) {
            HttpResponse<String> answer = patch(TEAM + "/p2-2", type, main("\"cores\":1"));
            assertThat(answer.statusCode()).as(type).isEqualTo(415);
            assertThat(JsonMapper.shared()
                            .readTree(answer.body())
                            .get("message")
                            .asString())
                    .contains("--type merge")
                    .doesNotContain("--type json");
        }
        assertThat(patch(TEAM + "/p2-2", MERGE, "{").statusCode()).isEqualTo(400);
        assertThat(patch(TEAM + "/p2-2", MERGE, "[]").statusCode()).isEqualTo(422);
    }

    @Test
    void aPatchThatChangesNothingWritesNothing() throws Exception {
        assertThat(patch(TEAM + "/p2-2", MERGE, "{}").statusCode()).isEqualTo(200);
        assertThat(patch(TEAM + "/p2-2", MERGE, main("\"cores\":20")).statusCode())
                .isEqualTo(200);
        assertThat(context.getBean(FakeCluster.class).sent).isEmpty();
    }

    @Test
    void onlyTheLeaderResizes() throws Exception {
        var server = context.getBean(FakeCluster.class);
        server.leaderStatus = new LeaderStatus.NotLeading("waiting for the kube-scheduler in this pod to lead");
        HttpResponse<String> answer = patch(TEAM + "/p2-2", MERGE, main("\"cores\":1"));
        assertThat(answer.statusCode()).isEqualTo(503);
        assertThat(answer.body()).contains("waiting for the kube-scheduler in this pod to lead");
    }

    @Test
    void explainSaysWhatIsInTheWay() throws Exception {
        changes.pending("big", Gpus.request("APP:main: gpumem=12000 gpucores=10"), "0/3 nodes are available");
        JsonNode explanation = ok(TEAM + "/big/explain?node=n2");
        assertThat(explanation.get("phase").asString()).isEqualTo("Pending");
        assertThat(explanation.get("summary").asString()).startsWith("0/3 nodes fit: 3 no GPU with 12000 MiB free");
        assertThat(explanation.get("kubeScheduler").asString()).isEqualTo("0/3 nodes are available");
        assertThat(explanation.get("suggestions").toString())
                .isEqualTo("[\"nvidia.com/gpumem: 10000 instead of 12000\"]");
        assertThat(explanation.get("gpus").size()).isEqualTo(2);
        assertThat(explanation.at("/refusals/0/nodes/count").asInt()).isEqualTo(3);
        assertThat(ok(TEAM + "/p1-2/explain").get("summary").asString())
                .isEqualTo("is bound to node n1 and holds main: 15000 MiB and 20 % of the cores of " + Gpus.uuid(1, 0));
        status(404, TEAM + "/nothing/explain");
    }

    @Test
    void onlyThoseWhoMayListThePodsOfANamespaceSeeTheNamesOfVictims() throws Exception {
        changes.pending("big", Gpus.request("APP:main: gpumem=12000"), "");
        String victim = "/preemptionOptions/0/victims/0";
        assertThat(okAs("admin", TEAM + "/big/explain").at(victim).toString())
                .isEqualTo("{\"namespace\":\"other\",\"name\":\"p3-4\",\"priority\":1,\"terminating\":false}");
        String hidden = "{\"namespace\":\"\",\"name\":\"\",\"priority\":1,\"terminating\":false}";
        assertThat(okAs("alice", TEAM + "/big/explain").at(victim).toString()).isEqualTo(hidden);
        assertThat(ok(TEAM + "/big/explain").at(victim).toString()).isEqualTo(hidden);
    }

    @Test
    void explainQuotesKubeSchedulerIfGpusAreNotTheObstacle() throws Exception {
        changes.pending("small", Gpus.request("APP:main: gpumem=100"), "");
        JsonNode explanation = ok(TEAM + "/small/explain");
        assertThat(explanation.get("summary").asString())
                .isEqualTo("3/3 nodes fit the pod's GPU requests (n1, n2, n3);"
                        + " kube-scheduler has not reported a failed attempt; this covers all nodes, because this"
                        + " replica does not know which of them kube-scheduler excludes");
        assertThat(explanation.get("placement").asString()).isEqualTo("fragmentation");
        assertThat(explanation.get("scores").findValuesAsString("node")).containsExactlyInAnyOrder("n1", "n2", "n3");
        assertThat(explanation.at("/scores/0/terms").findValuesAsString("name")).containsExactly("waste", "scarcity");
        assertThat(explanation.at("/scores/0/terms/0/thousandths").asInt()).isBetween(-1000, 1000);
        String message = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.";
        changes.pending("small", Gpus.request("APP:main: gpumem=100"), message);
        assertThat(ok(TEAM + "/small/explain").get("summary").asString())
                .contains("; kube-scheduler's last attempt: " + message);
    }

    /** Regression: the containers' amounts were added up, 100000 MiB and 100 cores, and 2 GPUs while it was Pending. */
    @Test
    void aPodHoldsTheMostThatItsContainersHoldAtOnce() throws Exception {
        changes.bound(
                "team",
                "steps",
                "n1",
                Map.of(),
                share("init", ContainerKind.INIT, 0, 6_000),
                share("main", ContainerKind.APP, 0, 4_000),
                share("other", ContainerKind.APP, 1, 500));
        changes.pending("waits", Gpus.request("INIT:init: gpumem=6000", "APP:main: gpumem=4000"), "");

        JsonNode status = ok(TEAM + "/steps").get("status");
        assertThat(status.at("/memoryMiB").asInt()).isEqualTo(6_000);
        assertThat(status.at("/cores").asInt()).isEqualTo(20);
        assertThat(status.at("/gpus").asInt()).isEqualTo(2);
        assertThat(status.at("/held")
                        .valueStream()
                        .map(amount -> amount.get("gpu").asString() + " " + amount.get("memoryMiB")))
                .containsExactly(Gpus.uuid(1, 0) + " 6000", Gpus.uuid(1, 1) + " 500");
        assertThat(ok(TEAM + "/waits").at("/status/gpus").asInt()).isEqualTo(1);
    }

    private static ContainerShare share(String name, ContainerKind kind, int gpu, int memoryMiB) {
        Vgpu vgpu = BoundPods.vgpu(Gpus.uuid(1, gpu), new GpuAmount(memoryMiB, 10, 1, false));
        return new ContainerShare(name, kind, new Vgpus(List.of(vgpu)));
    }

    /** Regression: where no node fitted the pod, the answer spoke of memory alone. */
    @Test
    void aSchedulingGateIsNamedFirstWhetherANodeFitsOrNot() throws Exception {
        String gates = "kube-scheduler does not try the pod before its scheduling gates are removed: a.io/x, b.io/y";
        changes.gated("large", Gpus.request("APP:main: gpumem=100000"), "a.io/x", "b.io/y");
        changes.gated("small", Gpus.request("APP:main: gpumem=100"), "a.io/x", "b.io/y");

        assertThat(ok(TEAM + "/large/explain").get("summary").asString())
                .startsWith(gates + "; then: 0/3 nodes fit: ")
                .doesNotContain("last attempt");
        assertThat(ok(TEAM + "/small/explain").get("summary").asString())
                .startsWith(gates + "; then: 3/3 nodes fit the pod's GPU requests (n1, n2, n3); this covers");
        assertThat(ok(TEAM + "/large").at("/status/reason").asString()).startsWith(gates + "; then: 0/3");
        assertThat(ok(TEAM + "?labelSelector=!app")
                        .get("items")
                        .valueStream()
                        .map(one -> one.at("/status/reason").asString()))
                .containsExactly(gates, gates);
    }

    @Test
    void explainLeavesOutNodesThatKubeSchedulerDidNotAskAbout() throws Exception {
        PodGpuRequest request = Gpus.request("APP:main: gpumem=12000");
        changes.pending("picky", request, "");
        context.getBean(PendingPods.class)
                .record(
                        new UnboundPod(changes.id("team", "picky"), 1, PreemptionRank.LOWEST, request),
                        PendingPods.FilterOutcome.DOES_NOT_FIT,
                        List.of("n2"));
        assertThat(ok(TEAM + "/picky/explain").get("summary").asString())
                .isEqualTo("0/1 nodes fit: 1 no GPU with 12000 MiB free; closest is n2, where " + Gpus.uuid(2, 0)
                        + " lacks 2000 MiB");
    }

    @Test
    void anInvalidRequestIsTheReason() throws Exception {
        changes.pending("bad", new ParsedRequest.Invalid("nvidia.com/gpucores: write 0 to 100"), "");
        String reason = "cannot be scheduled: nvidia.com/gpucores: write 0 to 100";
        assertThat(ok(TEAM + "/bad/explain").get("summary").asString()).isEqualTo(reason);
        assertThat(ok(TEAM + "/bad").at("/status/reason").asString()).isEqualTo(reason);
        assertThat(ok(TEAM + "?fieldSelector=metadata.name%3Dbad")
                        .at("/items/0/status/reason")
                        .asString())
                .isEqualTo(reason);
    }

    @Test
    void anUnhealthyGpuHasAReasonAndATimeAlsoInTheExplanationOfItsPods() throws Exception {
        Gpu lost = Gpus.gpu(4, 0, 40_000)
                .withHealth(new Unhealthy("XID 79: fell off the bus", Instant.parse("2026-11-26T16:00:00Z")));
        changes.node(4, lost, Gpus.gpu(4, 1, 40_000, false), Gpus.gpu(4, 2, 40_000));
        changes.bound("team", "on-n4", "n4", Map.of(), BoundPods.main(lost.uuid(), new GpuAmount(1000, 20, 1, false)));
        JsonNode gpus = ok(ROOT + "/gpus?fieldSelector=spec.nodeName%3Dn4").get("items");
        assertThat(gpus.size()).isEqualTo(3);
        assertThat(gpus.at("/0/status/healthy").asBoolean()).isFalse();
        assertThat(gpus.at("/0/status/reason").asString()).isEqualTo("XID 79: fell off the bus");
        assertThat(gpus.at("/0/status/since").asString()).isEqualTo("2026-11-26T16:00:00Z");
        assertThat(gpus.at("/1/status/reason").asString()).isEqualTo("XID error 48");
        assertThat(gpus.at("/1/status").has("since")).isFalse();
        assertThat(gpus.at("/2/status").has("reason")).isFalse();
        assertThat(ok(ROOT + "/gpunodes/n4").at("/status/healthyGpus").asInt()).isEqualTo(1);
        assertThat(ok(TEAM + "/on-n4/explain").get("summary").asString())
                .isEqualTo("is bound to node n4 and holds main: 1000 MiB and 20 % of the cores of " + lost.uuid() + "; "
                        + lost.uuid() + " is unhealthy since 2026-11-26T16:00:00Z: XID 79: fell off the bus");
    }

    /** NVML has never told its memory. */
    @Test
    void aGpuOfZeroMebibytesIsShownWithItsReasonAndHasNoCapacity() throws Exception {
        changes.node(4, Gpus.gpu(4, 0, 0, false), Gpus.gpu(4, 1, 40_000));
        changes.pending("big", Gpus.request("APP:main: gpumem=50000"), "");
        JsonNode gpu = ok(ROOT + "/gpus?fieldSelector=spec.nodeName%3Dn4").at("/items/0/status");
        assertThat(gpu.get("healthy").asBoolean()).isFalse();
        assertThat(gpu.get("reason").asString()).isEqualTo("XID error 48");
        for (String amount : new String[] {"memoryMiB", "cores", "slots"}) {
            assertThat(gpu.at("/" + amount + "/total").asInt(-1)).as(amount).isZero();
        }
        JsonNode node = ok(ROOT + "/gpunodes/n4").get("status");
        assertThat(node.get("healthyGpus").asInt()).isEqualTo(1);
        assertThat(node.at("/memoryMiB/total").asInt()).isEqualTo(40_000);
        assertThat(ok(TEAM + "/big/explain?node=n4").toString())
                .contains(Gpus.uuid(4, 0), "is unhealthy: XID error 48");
        changes.bound(
                "team", "small", "n4", Map.of(), BoundPods.main(Gpus.uuid(4, 1), new GpuAmount(1000, 20, 1, false)));
        assertThat(ok(ROOT + "/gpunodes/n4").at("/status/memoryMiB/allocated").asInt())
                .isEqualTo(1000);
    }

    @Test
    void theLateEndOfAPodDoesNotRemoveTheNextOneOfItsName() throws Exception {
        changes.bound("team", "db-0", "n1", Map.of());
        var shares = context.getBean(GpuShares.class);
        shares.remove(new PodId("team", "db-0", "uid-of-the-one-before"), OptionalLong.empty());
        assertThat(ok(TEAM + "/db-0").at("/metadata/uid").asString()).isEqualTo("uid-db-0");
    }

    @Test
    void theHistoryOfAPodHidesTheOtherPodsOfItsGpu() throws Exception {
        context.getBean(Figures.class)
                .histories
                .put(
                        Gpus.uuid(1, 0),
                        new UsageHistory(
                                Instant.parse("2026-11-26T20:00:00Z"),
                                1,
                                new UsageHistory.OfGpu(List.of(OptionalInt.of(1)), List.of()),
                                List.of(history("p1-2"), history("p1-4")),
                                List.of()));
        JsonNode history = ok(TEAM + "/p1-2/history").get(Gpus.uuid(1, 0));
        assertThat(history.get("containers").size()).isEqualTo(1);
        assertThat(history.at("/containers/0/uid").asString()).isEqualTo("uid-p1-2");
        assertThat(history.at("/containers/0/chargedMiB").toString()).isEqualTo("[1,null]");
        assertThat(history.has("gpu")).isFalse();
        assertThat(ok(ROOT + "/gpus/" + GpuNodes.name(Gpus.uuid(1, 0)) + "/history")
                        .get("containers")
                        .size())
                .isEqualTo(2);
        status(404, ROOT + "/gpus/" + GpuNodes.name(Gpus.uuid(1, 1)) + "/history");
    }

    private static UsageHistory.OfContainer history(String pod) {
        List<OptionalInt> figures = List.of(OptionalInt.of(1), OptionalInt.empty());
        return new UsageHistory.OfContainer(
                new PodContainer("team", pod, "uid-" + pod, "main"),
                figures,
                figures,
                figures,
                figures,
                figures,
                figures,
                figures);
    }

    @Test
    void theDescriptionIsServedUnderAnAddressThatChangesWithIt() throws Exception {
        String address = ok("/openapi/v3")
                .at("/paths")
                .path("apis/gpu.aliquot.io/v1alpha1")
                .path("serverRelativeURL")
                .asString();
        assertThat(address).contains("?hash=");
        assertThat(ok(address).get("openapi").asString()).isEqualTo("3.0.0");
    }

    private static ContainerShare container(String name, String gpu, int memoryMiB) {
        return new ContainerShare(
                name,
                ContainerKind.APP,
                BoundPods.main(gpu, new GpuAmount(memoryMiB, 0, 1, false)).vgpus());
    }

    private static String main(String fields) {
        return "{\"spec\":{\"containers\":[{\"name\":\"main\"," + fields + "}]}}";
    }

    private static String encoded(String query) {
        int at = query.indexOf('=');
        return query.substring(0, at + 1) + URLEncoder.encode(query.substring(at + 1), StandardCharsets.UTF_8);
    }

    private HttpResponse<String> get(String path, String accept) throws Exception {
        return client.send(
                HttpRequest.newBuilder(URI.create(ObjectsProgram.url(context) + path))
                        .header("Accept", accept)
                        .build(),
                BodyHandlers.ofString());
    }

    private JsonNode ok(String path) throws Exception {
        return status(200, path);
    }

    private JsonNode okAs(String user, String path) throws Exception {
        HttpResponse<String> answer = client.send(
                HttpRequest.newBuilder(URI.create(ObjectsProgram.url(context) + path))
                        .header("X-Remote-User", user)
                        .build(),
                BodyHandlers.ofString());
        assertThat(answer.statusCode()).as(answer.body()).isEqualTo(200);
        return JsonMapper.shared().readTree(answer.body());
    }

    private JsonNode status(int code, String path) throws Exception {
        HttpResponse<String> answer = get(path, "application/json");
        assertThat(answer.statusCode()).as(answer.body()).isEqualTo(code);
        return JsonMapper.shared().readTree(answer.body());
    }

    /** The cells of the table's only row. */
    private JsonNode row(String path) throws Exception {
        return JsonMapper.shared().readTree(get(path, TABLE).body()).at("/rows/0/cells");
    }

    private HttpResponse<String> patch(String path, String type, String body) throws Exception {
        return client.send(
                HttpRequest.newBuilder(URI.create(ObjectsProgram.url(context) + path))
                        .header("Content-Type", type)
                        .method("PATCH", BodyPublishers.ofString(body))
                        .build(),
                BodyHandlers.ofString());
    }
}
