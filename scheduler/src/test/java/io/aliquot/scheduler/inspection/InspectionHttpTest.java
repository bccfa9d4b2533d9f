package io.aliquot.scheduler.inspection;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Gpu;
import io.aliquot.api.GpuHealth.Unhealthy;
import io.aliquot.scheduler.apiserver.Cluster.LeaderStatus;
import io.aliquot.scheduler.apiserver.FakeCluster;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.inspection.ApiTestProgram.Cluster;
import io.aliquot.scheduler.inspection.PodLookup.ParsedRequest;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.server.KeyStores;
import io.aliquot.scheduler.server.RandomPorts;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.security.KeyStore;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.context.ConfigurableApplicationContext;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The API over real TLS connections. */
class InspectionHttpTest {
    private static final String ALL_NODES =
            "; this covers all nodes, because this replica does not know which of them kube-scheduler excludes";

    private static ConfigurableApplicationContext context;
    private static HttpClient client;

    @BeforeAll
    static void start() throws Exception {
        context = ApiTestProgram.start();
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        trusted.setCertificateEntry("server", context.getBean(KeyStore.class).getCertificate(KeyStores.ALIAS));
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        var tls = SSLContext.getInstance("TLS");
        tls.init(null, trust.getTrustManagers(), null);
        client = HttpClient.newBuilder().sslContext(tls).build();
    }

    @AfterAll
    static void stop() {
        context.close();
    }

    @Test
    void nodesAndTheirGpusAreListed() throws Exception {
        JsonNode nodes = ok("admin", "/api/v1/nodes");
        assertThat(nodes.get("total").asInt()).isEqualTo(3);
        assertThat(nodes.at("/items/0/name").asString()).isEqualTo("n1");
        assertThat(nodes.at("/items/0/gpus/1/memoryMiB").toString())
                .isEqualTo("{\"capacity\":40000,\"allocated\":30000,\"free\":10000}");
        assertThat(nodes.at("/items/0/gpus/1/cores").toString())
                .isEqualTo("{\"capacity\":100,\"allocated\":40,\"free\":60}");
        assertThat(ok("admin", "/api/v1/nodes/n2").get("name").asString()).isEqualTo("n2");
        assertThat(ok("admin", "/api/v1/gpus?node=n3").get("items")).hasSize(2);
        assertThat(problem(404, "admin", "/api/v1/nodes/n9")).contains("there is no node n9");
    }

    @Test
    void podsAndSharesAreListedAndFiltered() throws Exception {
        assertThat(ok("admin", "/api/v1/pods").get("total").asInt()).isEqualTo(12);
        assertThat(ok("admin", "/api/v1/pods?namespace=other&node=n1").toString())
                .isEqualTo("{\"items\":[{\"namespace\":\"other\",\"name\":\"p1-4\",\"uid\":\"uid-1-4\",\"node\":\"n1\","
                        + "\"state\":\"bound\",\"priority\":0,\"shares\":[{\"namespace\":\"other\",\"pod\":\"p1-4\","
                        + "\"uid\":\"uid-1-4\",\"node\":\"n1\",\"container\":\"main\",\"gpu\":\"" + Gpus.uuid(1, 0)
                        + "\",\"memoryMiB\":15000,\"cores\":20,\"policy\":\"fixed\",\"priority\":0,"
                        + "\"exclusive\":false}]}],\"total\":1}");
        assertThat(ok("admin", "/api/v1/shares?gpu=" + Gpus.uuid(2, 0))
                        .get("total")
                        .asInt())
                .isEqualTo(2);
        assertThat(ok("team", "/api/v1/pods/team/p1-2").get("uid").asString()).isEqualTo("uid-1-2");
        assertThat(problem(404, "team", "/api/v1/pods/team/none")).contains("/explain");
    }

    @Test
    void allPagesTogetherAreTheList() throws Exception {
        var names = new ArrayList<String>();
        String after = "";
        int pages = 0;
        do {
            JsonNode page = ok("admin", "/api/v1/pods?limit=5" + (after.isEmpty() ? "" : "&after=" + after));
            page.get("items")
                    .forEach(pod -> names.add(pod.get("namespace").asString() + "/"
                            + pod.get("name").asString()));
            after = page.has("next") ? page.get("next").asString() : "";
            pages++;
        } while (!after.isEmpty());
        assertThat(pages).isEqualTo(3);
        assertThat(names).hasSize(12).doesNotHaveDuplicates().isSorted();
    }

    @Test
    void reservationsListCapacityOfPodsThatAreNotBound() throws Exception {
        Ledger ledger = context.getBean(Ledger.class);
        ledger.reserve(new PodId("team", "soon", "uid-soon"), "n1", Gpus.request("APP:main: gpumem=100"));
        JsonNode reservation = ok("admin", "/api/v1/reservations").at("/items/0");
        assertThat(reservation.get("state").asString()).isEqualTo("expected");
        assertThat(reservation.at("/gpus/0/memoryMiB").asInt()).isEqualTo(100);
        ledger.observeEnded("uid-soon");
        assertThat(ok("admin", "/api/v1/reservations").get("items")).isEmpty();
    }

    @Test
    void explainSaysWhyAPodIsPending() throws Exception {
        addPending("big", Gpus.request("APP:main: gpumem=12000 gpucores=10"));
        JsonNode explanation = ok("admin", "/api/v1/pods/team/big/explain?node=n2");
        assertThat(explanation.get("state").asString()).isEqualTo("pending");
        assertThat(explanation.get("summary").asString())
                .isEqualTo("0/3 nodes fit: 3 no GPU with 12000 MiB free; closest is n1, where " + Gpus.uuid(1, 0)
                        + " lacks 2000 MiB" + ALL_NODES);
        assertThat(explanation.get("suggestions").toString())
                .isEqualTo("[\"nvidia.com/gpumem: 10000 instead of 12000\"]");
        assertThat(explanation.get("gpus")).hasSize(2);
        assertThat(explanation.at("/refusals/0/nodes/count").asInt()).isEqualTo(3);
        assertThat(explanation.at("/preemptionOptions/0/victims/0/name").asString())
                .isEqualTo("p1-4");
        // A caller that may not list the pods of that namespace sees the victim without its name.
        JsonNode seen = ok("team", "/api/v1/pods/team/big/explain");
        assertThat(seen.at("/preemptionOptions/0/victims/0").toString())
                .isEqualTo("{\"namespace\":\"\",\"name\":\"\",\"priority\":0,\"terminating\":false}");
    }

    @Test
    void explainQuotesKubeSchedulerIfGpusAreNotTheObstacle() throws Exception {
        addPending("small", Gpus.request("APP:main: gpumem=100"));
        assertThat(ok("admin", "/api/v1/pods/team/small/explain").get("summary").asString())
                .isEqualTo("3/3 nodes fit the pod's GPU requests (n1, n2, n3);"
                        + " kube-scheduler has not reported a failed attempt"
                        + ALL_NODES);
        JsonNode scores = ok("admin", "/api/v1/pods/team/small/explain").get("scores");
        assertThat(scores).hasSize(3);
        assertThat(scores.findValuesAsString("node")).containsExactlyInAnyOrder("n1", "n2", "n3");
        assertThat(scores.at("/0/terms").findValuesAsString("name")).containsExactly("waste", "scarcity", "idleness");
        assertThat(scores.at("/0/terms/0/thousandths").asInt()).isBetween(-1000, 1000);
        String message = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.";
        addPending("small", Gpus.request("APP:main: gpumem=100"), message);
        JsonNode explanation = ok("admin", "/api/v1/pods/team/small/explain");
        assertThat(explanation.get("summary").asString())
                .isEqualTo("3/3 nodes fit the pod's GPU requests (n1, n2, n3); kube-scheduler's last attempt: "
                        + message + ALL_NODES);
        assertThat(explanation.get("kubeScheduler").asString()).isEqualTo(message);
    }

    @Test
    void explainLeavesOutNodesThatKubeSchedulerDidNotAskAbout() throws Exception {
        addPending("picky", Gpus.request("APP:main: gpumem=12000"));
        String filterRequest = """
                {"NodeNames": ["n2"], "Pod": {"metadata": {"namespace": "team", "name": "picky", "uid": "uid-picky"},
                  "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpumem": "12000"}}}]}}}
                """;
        HttpResponse<String> refused = HttpClient.newHttpClient()
                .send(
                        HttpRequest.newBuilder(
                                        URI.create("http://localhost:" + RandomPorts.extender(context) + "/filter"))
                                .header("Content-Type", "application/json")
                                .POST(BodyPublishers.ofString(filterRequest))
                                .build(),
                        BodyHandlers.ofString());
        assertThat(refused.body()).contains("no GPU with 12000 MiB free");
        assertThat(ok("admin", "/api/v1/pods/team/picky/explain").get("summary").asString())
                .isEqualTo("0/1 nodes fit: 1 no GPU with 12000 MiB free; closest is n2, where " + Gpus.uuid(2, 0)
                        + " lacks 2000 MiB");
    }

    @Test
    void explainCoversPodsThatAreNotPendingForGpus() throws Exception {
        addPending("plain", Gpus.request());
        assertThat(ok("team", "/api/v1/pods/team/plain/explain").get("state").asString())
                .isEqualTo("no-gpu");
        context.getBean(Cluster.class)
                .pods
                .put("team/bad", pod("bad", new ParsedRequest.Invalid("nvidia.com/gpucores: write 0 to 100"), ""));
        assertThat(ok("team", "/api/v1/pods/team/bad/explain").get("summary").asString())
                .isEqualTo("cannot be scheduled: nvidia.com/gpucores: write 0 to 100");
        context.getBean(Cluster.class)
                .pods
                .put(
                        "team/p1-2",
                        new PodLookup.Pod(
                                new PodId("team", "p1-2", "uid-1-2"),
                                "n1",
                                false,
                                "aliquot-scheduler",
                                new ParsedRequest.Valid(Gpus.request("APP:main: gpumem=15000 gpucores=20")),
                                0,
                                true,
                                ""));
        JsonNode bound = ok("team", "/api/v1/pods/team/p1-2/explain");
        assertThat(bound.get("summary").asString())
                .isEqualTo("is bound to node n1 and holds main: 15000 MiB and 20 % of the cores of " + Gpus.uuid(1, 0));
        assertThat(bound.get("placement").asString()).isEqualTo("binpack, set by the node or the chart");
        assertThat(problem(404, "team", "/api/v1/pods/team/missing/explain")).contains("there is no pod missing");
    }

    @Test
    void anUnhealthyGpuHasAReasonAndATimeAlsoInTheExplanationOfItsPods() throws Exception {
        Ledger ledger = context.getBean(Ledger.class);
        Gpu lost = Gpus.gpu(4, 0, 40_000)
                .withHealth(new Unhealthy("XID 79: fell off the bus", Instant.parse("2026-11-26T16:00:00Z")));
        Gpu ofEarlierAgent = Gpus.gpu(4, 1, 40_000, false);
        var id = new PodId("team", "on-n4", "uid-on-n4");
        try {
            ExtenderFixture.node(ledger, 4, lost, ofEarlierAgent, Gpus.gpu(4, 2, 40_000));
            JsonNode gpus = ok("admin", "/api/v1/gpus?node=n4").get("items");
            assertThat(gpus.at("/0/healthy").asBoolean()).isFalse();
            assertThat(gpus.at("/0/reason").asString()).isEqualTo("XID 79: fell off the bus");
            assertThat(gpus.at("/0/since").asString()).isEqualTo("2026-11-26T16:00:00Z");
            assertThat(gpus.at("/1/reason").asString()).isEqualTo("XID error 48");
            assertThat(gpus.get(1).has("since")).isFalse();
            assertThat(gpus.at("/2/reason").asString()).isEmpty();
            assertThat(gpus.get(2).has("since")).isFalse();

            ledger.observeBound(
                    BoundPods.of(id, "n4", 1, BoundPods.main(lost.uuid(), new GpuAmount(1000, 20, 1, false))));
            var request = new ParsedRequest.Valid(Gpus.request("APP:main: gpumem=1000 gpucores=20"));
            context.getBean(Cluster.class)
                    .pods
                    .put("team/on-n4", new PodLookup.Pod(id, "n4", false, "aliquot-scheduler", request, 0, true, ""));
            assertThat(ok("team", "/api/v1/pods/team/on-n4/explain")
                            .get("summary")
                            .asString())
                    .isEqualTo("is bound to node n4 and holds main: 1000 MiB and 20 % of the cores of " + lost.uuid()
                            + "; " + lost.uuid()
                            + " is unhealthy since 2026-11-26T16:00:00Z: XID 79: fell off the bus");
        } finally {
            context.getBean(Cluster.class).pods.remove("team/on-n4");
            ledger.observeEnded(id.uid());
            ledger.removeNode("n4");
        }
    }

    @Test
    void requestsWithoutAValidTokenAreRefused() throws Exception {
        for (String header :
                List.of("", "Bearer", "Bearer ", "Basic YWRtaW46", "Bearer unknown", "Bearer a b", "admin")) {
            var request = HttpRequest.newBuilder(uri("/api/v1/nodes"));
            if (!header.isEmpty()) {
                request.header("Authorization", header);
            }
            HttpResponse<String> answer = client.send(request.build(), BodyHandlers.ofString());
            assertThat(answer.statusCode()).as(header).isEqualTo(401);
            assertThat(answer.headers().firstValue("WWW-Authenticate")).hasValue("Bearer realm=\"aliquot\"");
            assertThat(answer.headers().firstValue("Content-Type")).hasValue("application/problem+json");
        }
        var twice = HttpRequest.newBuilder(uri("/api/v1/nodes"))
                .header("Authorization", "Bearer admin")
                .header("Authorization", "Bearer admin");
        assertThat(client.send(twice.build(), BodyHandlers.ofString()).statusCode())
                .isEqualTo(401);
    }

    @Test
    void rbacDecidesWhatACallerSees() throws Exception {
        assertThat(problem(403, "team", "/api/v1/nodes"))
                .isEqualTo("team is not allowed to list nodes; ask a cluster administrator for that permission (RBAC)");
        problem(403, "team", "/api/v1/pods");
        problem(403, "team", "/api/v1/pods?namespace=other");
        problem(403, "team", "/api/v1/pods/other/p1-4");
        problem(403, "team", "/api/v1/pods/other/p1-4/explain");
        problem(403, "team", "/api/v1/reservations");
        assertThat(ok("team", "/api/v1/pods?namespace=team").get("total").asInt())
                .isEqualTo(9);
        assertThat(ok("team", "/api/v1/shares?namespace=team").get("total").asInt())
                .isEqualTo(9);
    }

    @Test
    void aTokenIsReviewedOnceInTenSeconds() throws Exception {
        for (int i = 0; i < 5; i++) {
            ok("team-often", "/api/v1/pods?namespace=team");
        }
        assertThat(context.getBean(Cluster.class).tokens)
                .filteredOn("team-often"::equals)
                .hasSize(1);
    }

    @Test
    void theResponseIs503WhileTheApiServerIsNotReachable() throws Exception {
        assertThat(problem(503, "down", "/api/v1/nodes")).contains("try again: connection refused");
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "/api/v1/nodes?limit=0",
                "/api/v1/nodes?limit=1001",
                "/api/v1/nodes?limit=x",
                "/api/v1/nodes?limit=1&limit=2",
                "/api/v1/nodes?after=%20",
                "/api/v1/nodes?after=",
                "/api/v1/nodes?node=n1",
                "/api/v1/gpus?node=N1",
                "/api/v1/gpus?node=",
                "/api/v1/shares?gpu=GPU-1",
                "/api/v1/pods/team/UPPER",
                "/api/v1/nodes/n1?x=y"
            })
    void invalidParametersAreRefusedWithWhatToWrite(String path) throws Exception {
        assertThat(problem(400, "admin", path)).containsAnyOf("write", "allowed", "leave out");
    }

    @Test
    void unknownPathsAndMethodsGetTheSameKindOfProblem() throws Exception {
        problem(404, "admin", "/api/v1/");
        problem(404, "admin", "/api/v1/nothing");
        var request = HttpRequest.newBuilder(uri("/api/v1/nodes"))
                .header("Authorization", "Bearer admin")
                .method("DELETE", BodyPublishers.noBody());
        HttpResponse<String> answer = client.send(request.build(), BodyHandlers.ofString());
        assertThat(answer.statusCode()).isEqualTo(405);
        assertThat(answer.headers().firstValue("Allow")).hasValue("GET");
        assertThat(answer.headers().firstValue("Content-Type")).hasValue("application/problem+json");
    }

    @Test
    void aResizeThatFitsIsWritten() throws Exception {
        var server = context.getBean(FakeCluster.class);
        int before = server.sent.size();
        HttpResponse<String> answer = patch(
                "admin",
                "team/p3-3",
                "{\"shares\":[{\"container\":\"main\",\"memoryMiB\":25000,\"policy\":\"elastic\"}]}");
        assertThat(answer.statusCode()).as(answer.body()).isEqualTo(200);
        JsonNode share = JsonMapper.shared().readTree(answer.body()).at("/shares/0");
        assertThat(share.get("memoryMiB").asInt()).isEqualTo(25_000);
        assertThat(share.get("cores").asInt()).isEqualTo(20);
        assertThat(share.get("policy").asString()).isEqualTo("elastic");
        assertThat(server.sent).hasSize(before + 1);
        assertThat(server.sent.get(before).pod().name()).isEqualTo("p3-3");
        assertThat(server.sent.get(before).annotations().get("aliquot.io/vgpu.main"))
                .contains(Gpus.uuid(3, 1) + " memory=25000Mi cores=20 policy=elastic");
        // The new share counts as allocated at once, before the watch reports it.
        assertThat(ok("admin", "/api/v1/gpus?node=n3")
                        .at("/items/1/memoryMiB/free")
                        .asInt())
                .isZero();
        // The fake API server does not report the outcome of the write.
        answer = patch("admin", "team/p3-3", "{\"shares\":[{\"container\":\"main\",\"cores\":1}]}");
        assertThat(answer.statusCode()).isEqualTo(503);
        assertThat(answer.headers().firstValue("Retry-After")).hasValue("1");
        assertThat(answer.body()).contains("the outcome of an earlier resize is not known yet");
        answer = patch("admin", "team/p3-2", "{\"shares\":[{\"container\":\"other\",\"cores\":1}]}");
        assertThat(answer.statusCode()).isEqualTo(409);
        assertThat(answer.body()).contains("container other holds no GPU; those that do: main");
        answer = patch("admin", "team/p3-2", "{\"shares\":[{\"container\":\"main\",\"memoryMiB\":25001}]}");
        assertThat(answer.statusCode()).as(answer.body()).isEqualTo(409);
        assertThat(answer.headers().firstValue("Content-Type")).hasValue("application/problem+json");
        assertThat(server.sent).hasSize(before + 1);
    }

    @Test
    void aResizeRequiresPermissionToPatchThePod() throws Exception {
        HttpResponse<String> answer = patch("team", "team/p1-2", "{\"shares\":[{\"container\":\"main\",\"cores\":1}]}");
        assertThat(answer.statusCode()).isEqualTo(403);
        assertThat(answer.body()).contains("team is not allowed to patch pods p1-2 in namespace team");
    }

    @Test
    void onlyTheLeaderResizes() throws Exception {
        var server = context.getBean(FakeCluster.class);
        var leaderStatus = server.leaderStatus;
        server.leaderStatus = new LeaderStatus.NotLeading("waiting for the kube-scheduler in this pod to lead");
        try {
            HttpResponse<String> answer =
                    patch("admin", "team/p1-2", "{\"shares\":[{\"container\":\"main\",\"cores\":1}]}");
            assertThat(answer.statusCode()).isEqualTo(503);
            assertThat(answer.headers().firstValue("Retry-After")).hasValue("1");
            assertThat(answer.headers().firstValue("Connection")).hasValue("close");
            assertThat(answer.body()).contains("waiting for the kube-scheduler in this pod to lead");
        } finally {
            server.leaderStatus = leaderStatus;
        }
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "[]",
                "{}",
                "{\"shares\":[]}",
                "{\"shares\":[{}]}",
                "{\"shares\":[{\"container\":\"main\"}]}",
                "{\"shares\":[{\"container\":\"main\",\"cores\":101}]}",
                "{\"shares\":[{\"container\":\"main\",\"cores\":1.5}]}",
                "{\"shares\":[{\"container\":\"main\",\"cores\":\"1\"}]}",
                "{\"shares\":[{\"container\":\"main\",\"memoryMiB\":1e999999999}]}",
                "{\"shares\":[{\"container\":\"main\",\"memoryMiB\":0}]}",
                "{\"shares\":[{\"container\":\"main\",\"policy\":\"best\"}]}",
                "{\"shares\":[{\"container\":\"main\",\"cores\":1,\"gpu\":\"GPU-1\"}]}",
                "{\"shares\":[{\"container\":\"main\",\"cores\":1,\"memory\":3}]}",
                "{\"shares\":[{\"container\":\"main\",\"cores\":1}],\"more\":1}",
                "{",
                "null"
            })
    void anInvalidResizeIsRefused(String body) throws Exception {
        HttpResponse<String> answer = patch("admin", "team/p2-2", body);
        assertThat(answer.statusCode()).as(answer.body()).isEqualTo(400);
        assertThat(answer.headers().firstValue("Content-Type")).hasValue("application/problem+json");
    }

    private static HttpResponse<String> patch(String token, String pod, String body) throws Exception {
        return client.send(
                HttpRequest.newBuilder(uri("/api/v1/pods/" + pod + "/shares"))
                        .header("Authorization", "Bearer " + token)
                        .header("Content-Type", "application/json")
                        .method("PATCH", BodyPublishers.ofString(body))
                        .build(),
                BodyHandlers.ofString());
    }

    @Test
    void theApiIsServedOnItsOwnPortOnly() throws Exception {
        var otherPort = HttpRequest.newBuilder(
                        URI.create("http://127.0.0.1:" + RandomPorts.health(context) + "/api/v1/nodes"))
                .header("Authorization", "Bearer admin")
                .build();
        assertThat(client.send(otherPort, BodyHandlers.ofString()).statusCode()).isEqualTo(404);
        assertThat(problem(404, "admin", "/metrics")).isEmpty();
    }

    @Test
    void theDocumentIsServed() throws Exception {
        assertThat(ok("team", "/api/v1/openapi.json").get("openapi").asString()).isEqualTo("3.1.0");
    }

    private static void addPending(String name, PodGpuRequest request) {
        addPending(name, request, "");
    }

    private static void addPending(String name, PodGpuRequest request, String message) {
        context.getBean(Cluster.class).pods.put("team/" + name, pod(name, new ParsedRequest.Valid(request), message));
    }

    private static PodLookup.Pod pod(String name, ParsedRequest request, String schedulerMessage) {
        return new PodLookup.Pod(
                new PodId("team", name, "uid-" + name),
                "",
                false,
                "aliquot-scheduler",
                request,
                5,
                true,
                schedulerMessage);
    }

    private static JsonNode ok(String token, String path) throws Exception {
        HttpResponse<String> answer = get(token, path);
        assertThat(answer.statusCode()).as(answer.body()).isEqualTo(200);
        assertThat(answer.headers().firstValue("Content-Type")).hasValue("application/json");
        return JsonMapper.shared().readTree(answer.body());
    }

    /** The problem's detail; empty if the response is a line of text. */
    private static String problem(int status, String token, String path) throws Exception {
        HttpResponse<String> answer = get(token, path);
        assertThat(answer.statusCode()).as(answer.body()).isEqualTo(status);
        if (!path.startsWith("/api/v1/")) {
            return "";
        }
        assertThat(answer.headers().firstValue("Content-Type")).hasValue("application/problem+json");
        JsonNode problem = JsonMapper.shared().readTree(answer.body());
        assertThat(problem.get("status").asInt()).isEqualTo(status);
        assertThat(problem.propertyNames())
                .containsAll(List.of("title", "status", "detail"))
                .isSubsetOf(List.of("type", "title", "status", "detail", "instance"));
        return problem.get("detail").asString();
    }

    private static HttpResponse<String> get(String token, String path) throws Exception {
        return client.send(
                HttpRequest.newBuilder(uri(path))
                        .header("Authorization", "Bearer " + token)
                        .build(),
                BodyHandlers.ofString());
    }

    private static URI uri(String path) {
        return URI.create("https://localhost:" + RandomPorts.api(context) + path);
    }
}
