package io.aliquot.scheduler.extensionapi;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.pods.Fence;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus;
import io.aliquot.scheduler.cluster.FakeCluster;
import io.aliquot.scheduler.extensionapi.Authority.Identity;
import io.aliquot.scheduler.extensionapi.ExtensionApiProgram.FakeControlPlane;
import io.aliquot.scheduler.extensionapi.ExtensionApiProgram.Part;
import io.aliquot.scheduler.extensionapi.identity.FrontProxyKeeper;
import io.aliquot.scheduler.extensionapi.identity.RequestUser;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.server.ports.RandomPorts;
import io.aliquot.testing.Await;
import io.aliquot.testing.Tls;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import javax.net.ssl.SSLContext;
import org.bouncycastle.asn1.x509.KeyPurposeId;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.context.ConfigurableApplicationContext;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The aggregated API's port over real TLS connections, with certificates of two CAs. */
class ExtensionApiHttpTest {
    private static final String NODES = Discovery.VERSION_PATH + "/gpunodes";
    private static final String SHARE = Discovery.VERSION_PATH + "/namespaces/team/gpushares/train";
    private static final String ALLOWED = "[\"front-proxy-client\"]";
    private static final String ALICE = "X-Remote-User: alice\r\n";
    private static final String MERGE = "Content-Type: application/merge-patch+json\r\n";

    private static Authority frontProxyCa;
    private static Authority clientCa;
    private static Identity frontProxy;
    private static ConfigurableApplicationContext leader;
    private static ConfigurableApplicationContext other;

    /** A response; the head has all of its lines. */
    private record Answer(int status, String head, String text) {
        JsonNode json() {
            return JsonMapper.shared().readTree(text);
        }

        String message() {
            assertThat(json().get("kind").asString()).isEqualTo("Status");
            assertThat(json().get("code").asInt()).isEqualTo(status);
            return json().get("message").asString();
        }
    }

    @BeforeAll
    static void start() throws Exception {
        frontProxyCa = new Authority("front-proxy-ca");
        clientCa = new Authority("kubernetes");
        frontProxy = frontProxyCa.client("front-proxy-client");
        Identity server = clientCa.issue("localhost", KeyPurposeId.id_kp_serverAuth, Duration.ofDays(1));
        leader = ExtensionApiProgram.start();
        other = ExtensionApiProgram.start();
        ExtensionApiProgram.serve(leader, server);
        ExtensionApiProgram.serve(other, server);
    }

    @AfterAll
    static void stop() {
        leader.close();
        other.close();
    }

    @BeforeEach
    void bothAreReadyAndOneLeads() throws Exception {
        trust(frontProxyCa.pem(), ALLOWED, clientCa.pem());
        for (ConfigurableApplicationContext replica : List.of(leader, other)) {
            replica.getBean(Part.class).waits = "";
        }
        leader.getBean(FakeCluster.class).leaderStatus = new LeaderStatus.Leads(new Fence("aliquot-1_uuid", 3));
        other.getBean(FakeCluster.class).stopLeading();
        leadsAt(RandomPorts.webhooks(leader));
    }

    private static void trust(String authorities, String names, String clientAuthorities) {
        for (ConfigurableApplicationContext replica : List.of(leader, other)) {
            replica.getBean(FakeControlPlane.class).authentication =
                    FakeControlPlane.of(authorities, names, clientAuthorities);
            replica.getBean(FrontProxyKeeper.class).read();
        }
    }

    private static void leadsAt(int port) {
        other.getBean(FakeControlPlane.class).leader =
                Optional.of(InetSocketAddress.createUnresolved("127.0.0.1", port));
    }

    @Test
    void theFrontProxysHeadersNameTheUser() throws Exception {
        Answer answer = get(
                frontProxy,
                NODES,
                ALICE + "X-Remote-Uid: 7\r\nX-Remote-Group: team\r\nX-Remote-Group: system:authenticated\r\n"
                        + "X-Remote-Extra-Example.com%2fScopes: a\r\nX-Remote-Extra-Example.com%2fScopes: ü\r\n");

        assertThat(answer.status()).as(answer.text()).isEqualTo(200);
        assertThat(JsonMapper.shared().readValue(answer.text(), RequestUser.class))
                .isEqualTo(new RequestUser(
                        "alice",
                        "7",
                        List.of("team", "system:authenticated"),
                        java.util.Map.of("example.com/scopes", List.of("a", "ü"))));
    }

    /** Regression: sixteen slow patches of one user kept all other users out. */
    @Test
    void slowRequestsOfOneUserKeepNoOtherUserOut() throws Exception {
        String mallory = "X-Remote-User: system:serviceaccount:m:";
        var slow = new ArrayList<Socket>();
        try {
            Await.await("the user may send no more", () -> {
                Socket socket = Tls.anyServer(frontProxy.key(), frontProxy.certificate())
                        .getSocketFactory()
                        .createSocket(InetAddress.getLoopbackAddress(), RandomPorts.webhooks(leader));
                slow.add(socket);
                socket.getOutputStream()
                        .write(("PATCH " + SHARE + " HTTP/1.1\r\nHost: a\r\n" + MERGE + mallory + slow.size()
                                        + "\r\nContent-Length: 9\r\n\r\n{")
                                .getBytes(UTF_8));
                return get(frontProxy, NODES, mallory + "x\r\n").status() == 429;
            });
            assertThat(slow).hasSizeGreaterThanOrEqualTo(7);
            assertThat(get(frontProxy, NODES, ALICE).status()).isEqualTo(200);
        } finally {
            for (Socket socket : slow) {
                socket.close();
            }
        }
    }

    @Test
    void headersWithoutTheFrontProxysCertificateAreForgedAndRefused() throws Exception {
        assertUnauthorized(get(null, NODES, ALICE), "presents no certificate");
        assertUnauthorized(get(clientCa.client("front-proxy-client"), NODES, ALICE), "not of the front proxy's CA");
        assertUnauthorized(get(frontProxyCa.client("somebody"), NODES, ALICE), "name that is not allowed");
        Identity expired =
                frontProxyCa.issue("front-proxy-client", KeyPurposeId.id_kp_clientAuth, Duration.ofHours(-1));
        assertUnauthorized(get(expired, NODES, ALICE), "not valid now");
        Identity server = frontProxyCa.issue("front-proxy-client", KeyPurposeId.id_kp_serverAuth, Duration.ofDays(1));
        assertUnauthorized(get(server, NODES, ALICE), "not for clients");
        assertUnauthorized(get(frontProxy, NODES, ""), "names no user");
    }

    @Test
    void forwardedUserIsBelievedOnlyOfAReplica() throws Exception {
        String root = java.util.Base64.getEncoder()
                .encodeToString("{\"name\":\"root\",\"uid\":\"\",\"groups\":[],\"extra\":{}}".getBytes(UTF_8));

        assertUnauthorized(
                send(leader, null, "PATCH", SHARE, MERGE + "Aliquot-Forwarded-User: " + root + "\r\n", "{}"),
                "presents no certificate");
        Answer answer = send(
                leader, frontProxy, "PATCH", SHARE, ALICE + MERGE + "Aliquot-Forwarded-User: " + root + "\r\n", "{}");
        assertThat(answer.json().at("/user/name").asString()).isEqualTo("alice");
    }

    @Test
    void rotatedAuthorityIsFollowedWithoutARestart() throws Exception {
        var next = new Authority("front-proxy-ca");
        Identity rotated = next.client("front-proxy-client");
        assertUnauthorized(get(rotated, NODES, ALICE), "not of the front proxy's CA");

        trust(frontProxyCa.pem() + next.pem(), ALLOWED, clientCa.pem());
        assertThat(get(frontProxy, NODES, ALICE).status()).isEqualTo(200);
        assertThat(get(rotated, NODES, ALICE).status()).isEqualTo(200);

        trust(next.pem(), ALLOWED, clientCa.pem());
        assertUnauthorized(get(frontProxy, NODES, ALICE), "not of the front proxy's CA");
        assertThat(get(rotated, NODES, ALICE).status()).isEqualTo(200);
    }

    @Test
    void anyNameIsAllowedOnlyIfTheFrontProxysAuthorityIssuesNoUsersCertificates() throws Exception {
        trust(frontProxyCa.pem(), "[]", clientCa.pem());
        assertThat(get(frontProxyCa.client("any"), NODES, ALICE).status()).isEqualTo(200);

        trust(frontProxyCa.pem(), "[]", clientCa.pem() + frontProxyCa.pem());
        assertUnauthorized(get(frontProxy, NODES, ALICE), "--requestheader-allowed-names");
    }

    @Test
    void aClusterWithoutTheAggregationLayerIsToldSo() throws Exception {
        trust("", "", clientCa.pem());
        assertUnauthorized(get(frontProxy, NODES, ALICE), "--requestheader-client-ca-file");
    }

    @Test
    void discoveryIsAnsweredWhateverIsMissing() throws Exception {
        leader.getBean(Part.class).waits = "the list of pods";

        assertThat(get(null, "/apis", "").json().at("/groups/0/name").asString())
                .isEqualTo("gpu.aliquot.io");
        assertThat(get(null, "/apis/gpu.aliquot.io", "").json().get("kind").asString())
                .isEqualTo("APIGroup");
        JsonNode resources = get(null, Discovery.VERSION_PATH, "").json();
        assertThat(resources.get("groupVersion").asString()).isEqualTo("gpu.aliquot.io/v1alpha1");
        assertThat(resources
                        .get("resources")
                        .valueStream()
                        .map(resource -> resource.get("name").asString() + " " + resource.get("verbs")))
                .containsExactly(
                        "gpunodes [\"get\",\"list\",\"watch\"]",
                        "gpus [\"get\",\"list\",\"watch\"]",
                        "gpuquotas [\"get\",\"list\",\"watch\"]",
                        "gpus/history [\"get\"]",
                        "gpushares [\"get\",\"list\",\"patch\",\"watch\"]",
                        "gpushares/explain [\"get\"]",
                        "gpushares/history [\"get\"]");
        Answer data = get(frontProxy, NODES, ALICE);
        assertThat(data.status()).isEqualTo(503);
        assertThat(data.message()).contains("waits for the list of pods");
        assertThat(data.head()).containsIgnoringCase("Retry-After: 1").containsIgnoringCase("Connection: close");
    }

    /** The API server takes the plain list then, and adds it to its own aggregated discovery (AggregationIT). */
    @Test
    void aRequestForAggregatedDiscoveryIsAnsweredWithThePlainOne() throws Exception {
        String accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

        Answer answer = get(null, "/apis", "Accept: " + accept + ", application/json\r\n");
        assertThat(answer.head()).contains("application/json").doesNotContain("apidiscovery");
        assertThat(answer.json().get("kind").asString()).isEqualTo("APIGroupList");
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "/apis/gpu.aliquot.io/v1alpha1/gpunodes;x",
                "/apis;x/gpu.aliquot.io/v1alpha1/gpunodes",
                "/apis//gpu.aliquot.io/v1alpha1/gpunodes",
                "/apis/gpu.aliquot.io/v1alpha1/./gpunodes",
                "/apis/gpu.aliquot.io/v1alpha1/gpus/../gpunodes",
                "/apis/../admission/gpu",
                "/apis/gpu.aliquot.io/v1alpha1/gpus/..",
                "/apis/gpu.aliquot.io/v1alpha1/gpus%2fgpunodes",
                "/apis/gpu.aliquot.io/v1alpha1/%2e%2e/gpunodes",
                "/apis/gpu.aliquot.io/v1alpha1/gpu%6eodes",
                "/apis/gpu.aliquot.io/v1alpha1\\gpunodes",
                "//apis/gpu.aliquot.io/v1alpha1/gpunodes"
            })
    void pathsThatTwoParsersMayReadDifferentlyAreRefused(String path) throws Exception {
        assertThat(get(frontProxy, path, ALICE).status()).isEqualTo(400);
    }

    @Test
    void theApiIsServedOnItsOwnPortOnly() throws Exception {
        try (var health = new Socket(InetAddress.getLoopbackAddress(), RandomPorts.health(leader))) {
            health.getOutputStream()
                    .write(("GET " + NODES + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + ALICE + "\r\n")
                            .getBytes(UTF_8));
            assertThat(answer(new String(health.getInputStream().readAllBytes(), ISO_8859_1))
                            .status())
                    .isEqualTo(404);
        }
        assertThat(get(frontProxy, "/metrics", ALICE).status()).isEqualTo(404);
    }

    @Test
    void everyRefusalIsAStatus() throws Exception {
        assertThat(get(frontProxy, Discovery.VERSION_PATH + "/nothing", ALICE).message())
                .isNotEmpty();
        assertThat(get(frontProxy, "/apis/gpu.aliquot.io/v1alpha1/a;b", ALICE).message())
                .contains("without escapes");
        assertThat(send(leader, frontProxy, "DELETE", NODES, ALICE, "")
                        .json()
                        .get("reason")
                        .asString())
                .isEqualTo("MethodNotAllowed");
        Answer strategic = send(
                leader, frontProxy, "PATCH", SHARE, ALICE + "Content-Type: application/apply-patch+yaml\r\n", "{}");
        assertThat(strategic.status()).isEqualTo(415);
        assertThat(strategic.json().get("reason").asString()).isEqualTo("UnsupportedMediaType");
        assertThat(get(null, "/openapi/v2", "").message()).isNotEmpty();
    }

    @Test
    void aChangeGoesToTheLeaderWithItsUser() throws Exception {
        Answer answer = send(other, frontProxy, "PATCH", SHARE, ALICE + MERGE, "{\"a\":1}");

        assertThat(answer.status()).as(answer.text()).isEqualTo(200);
        assertThat(answer.json().at("/user/name").asString()).isEqualTo("alice");
        assertThat(answer.json().at("/patch/a").asInt()).isEqualTo(1);
        Answer refused = send(other, frontProxy, "PATCH", SHARE, ALICE + MERGE, "{\"refuse\":1}");
        assertThat(refused.status()).isEqualTo(409);
        assertThat(refused.message()).isEqualTo("GPU-1 has 10 MiB free");
    }

    @Test
    void aChangeIsForwardedOnce() throws Exception {
        leader.getBean(FakeCluster.class).stopLeading();

        Answer answer = send(other, frontProxy, "PATCH", SHARE, ALICE + MERGE, "{}");
        assertThat(answer.status()).isEqualTo(503);
        assertThat(answer.message()).contains("the leader changes");
    }

    @Test
    void withoutALeaderAChangeIsRefusedWithASentence() throws Exception {
        leadsAt(1);
        assertThat(send(other, frontProxy, "PATCH", SHARE, ALICE + MERGE, "{}").message())
                .contains("nothing was changed");

        other.getBean(FakeControlPlane.class).leader = Optional.empty();
        assertThat(send(other, frontProxy, "PATCH", SHARE, ALICE + MERGE, "{}").message())
                .contains("no scheduler leads");
    }

    @Test
    void theLeaderExplainsAndWithoutOneTheReplicaItself() throws Exception {
        Answer answer = send(other, frontProxy, "GET", SHARE + "/explain?node=n1", ALICE, "");
        assertThat(answer.json().at("/user/name").asString()).isEqualTo("alice");
        assertThat(answer.json().get("port").asInt()).isEqualTo(RandomPorts.webhooks(leader));

        leader.getBean(FakeCluster.class).stopLeading();
        Answer former = send(other, frontProxy, "GET", SHARE + "/explain", ALICE, "");
        assertThat(former.json().get("port").asInt()).isEqualTo(RandomPorts.webhooks(leader));

        leadsAt(1);
        Answer own = send(other, frontProxy, "GET", SHARE + "/explain", ALICE, "");
        assertThat(own.status()).isEqualTo(200);
        assertThat(own.json().get("port").asInt()).isEqualTo(RandomPorts.webhooks(other));
    }

    @Test
    void aLeaderWithAnotherCertificateGetsNothing() throws Exception {
        ConfigurableApplicationContext stranger = ExtensionApiProgram.start();
        try {
            ExtensionApiProgram.serve(
                    stranger, clientCa.issue("localhost", KeyPurposeId.id_kp_serverAuth, Duration.ofDays(1)));
            leadsAt(RandomPorts.webhooks(stranger));

            Answer answer = send(other, frontProxy, "PATCH", SHARE, ALICE + MERGE, "{}");
            assertThat(answer.status()).isEqualTo(503);
            assertThat(answer.message()).contains("not reachable");
        } finally {
            stranger.close();
        }
    }

    private static void assertUnauthorized(Answer answer, String why) {
        assertThat(answer.status()).as(answer.text()).isEqualTo(401);
        assertThat(answer.message()).contains(why);
        assertThat(answer.json().get("reason").asString()).isEqualTo("Unauthorized");
    }

    private static Answer get(@Nullable Identity client, String path, String headers) throws Exception {
        return send(leader, client, "GET", path, headers, "");
    }

    /** One request over a connection of its own, with the path as it is. */
    private static Answer send(
            ConfigurableApplicationContext replica,
            @Nullable Identity client,
            String method,
            String path,
            String headers,
            String body)
            throws Exception {
        SSLContext tls = client == null ? Tls.anyServer() : Tls.anyServer(client.key(), client.certificate());
        try (var socket =
                tls.getSocketFactory().createSocket(InetAddress.getLoopbackAddress(), RandomPorts.webhooks(replica))) {
            socket.setSoTimeout(30_000);
            String length = body.isEmpty() ? "" : "Content-Length: " + body.length() + "\r\n";
            socket.getOutputStream()
                    .write((method + " " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + headers + length
                                    + "\r\n" + body)
                            .getBytes(UTF_8));
            return answer(new String(socket.getInputStream().readAllBytes(), ISO_8859_1));
        }
    }

    private static Answer answer(String text) throws IOException {
        int end = text.indexOf("\r\n\r\n");
        String head = text.substring(0, end);
        String body = new String(text.substring(end + 4).getBytes(ISO_8859_1), UTF_8);
        if (head.contains("Transfer-Encoding: chunked")) {
            body = unchunked(body);
        }
        return new Answer(Integer.parseInt(head.split(" ", -1)[1]), head, body);
    }

    private static String unchunked(String chunks) {
        var text = new StringBuilder();
        byte[] bytes = chunks.getBytes(UTF_8);
        int at = 0;
        while (true) {
            int line = at;
            while (bytes[line] != '\r') {
                line++;
            }
            int size = Integer.parseInt(new String(bytes, at, line - at, UTF_8), 16);
            if (size == 0) {
                return text.toString();
            }
            text.append(new String(bytes, line + 2, size, UTF_8));
            at = line + 2 + size + 2;
        }
    }
}
