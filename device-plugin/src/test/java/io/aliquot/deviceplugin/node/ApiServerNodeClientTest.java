package io.aliquot.deviceplugin.node;

import static io.aliquot.testing.Await.await;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.aliquot.api.format.FormatException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Predicate;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import tools.jackson.databind.json.JsonMapper;

/** Over HTTP against a server that gives the few responses needed here; the lab runs a real API server. */
@Timeout(60)
final class ApiServerNodeClientTest {
    private static final Duration PATIENCE = Duration.ofSeconds(10);

    private final Path token;
    private final HttpServer server;
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final BlockingQueue<String> events = new LinkedBlockingQueue<>();
    private final List<String> requests = new CopyOnWriteArrayList<>();
    private final ApiServerNodeClient node;
    private volatile String list =
            items(node(7, "\"gpu\":\"on\"", "\"aliquot.io/slots\":\"20\"", "\"aliquot.io/vgpu\":\"20\""));
    private volatile int patchStatus = 200;
    private final AtomicLong clock = new AtomicLong();
    private volatile boolean stopsInTheMiddle;

    /** Runs while a list of the Node waits for its answer. */
    private volatile Runnable duringList = () -> {};

    private final BlockingQueue<String> sliceEvents = new LinkedBlockingQueue<>();
    private final List<String> sliceRequests = new CopyOnWriteArrayList<>();
    private volatile String slices = "";
    private final Map<String, String> operatorSettings = new ConcurrentHashMap<>();

    ApiServerNodeClientTest(@TempDir Path folder) throws IOException {
        token = folder.resolve("token");
        Files.writeString(token, "first\n");
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(threads);
        server.createContext("/", this::answer);
        server.start();
        node = client("node1", PATIENCE);
    }

    private ApiServerNodeClient client(String name, Duration patience) {
        URI base = URI.create("http://127.0.0.1:" + server.getAddress().getPort());
        return new ApiServerNodeClient(
                new ApiServerClient(base, HttpClient.newHttpClient(), token, patience), name, () -> {}, clock::get);
    }

    @AfterEach
    void stop() {
        node.close();
        server.stop(0);
        threads.shutdownNow();
    }

    @Test
    void listsOnlyTheNodeOfItsName() throws Exception {
        NodeView view = awaitNode(found -> true);

        assertThat(view.labels()).containsEntry("gpu", "on");
        assertThat(view.annotations()).containsEntry("aliquot.io/slots", "20");
        assertThat(view.allocatable()).containsExactly(Map.entry("aliquot.io/vgpu", 20L));
        assertThat(requests.get(0))
                .contains("GET /api/v1/nodes?fieldSelector=metadata.name%3Dnode1")
                .contains("Bearer first");
    }

    @Test
    void withoutTheApiOfResourceSlicesThereAreNone() throws Exception {
        await(() -> node.draDevices().isPresent());

        assertThat(node.draDevices()).contains(List.of());
        assertThat(sliceRequests)
                .containsExactly("/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3Dnode1");
    }

    @Test
    void returnsTheDevicesOfTheNodesResourceSlicesAndTheirChanges() throws Exception {
        await(() -> node.draDevices().isPresent()); // else it might take the event
        slices = items("");
        try (var other = client("node2", PATIENCE)) {
            await(() -> other.draDevices().equals(Optional.of(List.of())));
            slices = items("""
                    {"spec":{"driver":"gpu.nvidia.com","nodeName":"node2","pool":{"name":"node2"},"devices":[
                      {"name":"gpu-0","attributes":{"uuid":{"string":"GPU-0"},"index":{"int":0},
                        "driverVersion":{"version":"580.0.0"}}},
                      {"name":"gpu-1-mig-0","attributes":{"parentUUID":{"string":"GPU-1"},"uuid":{"string":"MIG-7"}}},
                      {"name":"nic"}]}}""");
            sliceEvents.add("{\"type\":\"ADDED\",\"object\":{}}\n");

            await(() -> other.draDevices()
                    .equals(Optional.of(List.of(
                            new DraDevice("gpu.nvidia.com", "node2/gpu-0", Set.of("GPU-0")),
                            new DraDevice("gpu.nvidia.com", "node2/gpu-1-mig-0", Set.of("GPU-1")),
                            new DraDevice("gpu.nvidia.com", "node2/nic", Set.of())))));
        }
    }

    @Test
    void withoutTheRightToListResourceSlicesThereAreNoneUntilItIsGranted() throws Exception {
        slices = "forbidden";
        try (var other = client("node2", PATIENCE)) {
            await(() -> other.draDevices().equals(Optional.of(List.of())));

            slices = items("{\"spec\":{\"driver\":\"d\",\"pool\":{\"name\":\"p\"},\"devices\":[{\"name\":\"nic\"}]}}");

            await(() -> other.draDevices().equals(Optional.of(List.of(new DraDevice("d", "p/nic", Set.of())))));
        }
    }

    @Test
    void returnsAChangeThatTheWatchDelivers() throws Exception {
        awaitNode(found -> true);

        events.add(event("MODIFIED", node(8, "", "\"aliquot.io/slots\":\"30\"", "\"nvidia.com/gpumem\":\"3k\"")));

        NodeView view = awaitNode(found -> found.annotations().containsValue("30"));
        assertThat(view.capacity()).containsEntry("nvidia.com/gpumem", 3000L);
    }

    @Test
    void ignoresAnEventOlderThanItsOwnWrite() throws Exception {
        awaitNode(found -> true);
        node.patchMetadata(MetadataPatch.set(Map.of(), Map.of("aliquot.io/gpus", "{}")));

        events.add(event("MODIFIED", node(8, "", "\"old\":\"\"", "")));
        events.add(event("MODIFIED", node(90, "", "\"new\":\"\"", "")));

        assertThat(awaitNode(found -> !found.annotations().containsKey("written"))
                        .annotations())
                .containsKey("new");
    }

    @Test
    void aDeletedNodeIsAbsentAndItsSuccessorIsReturnedAtAnyVersion() throws Exception {
        awaitNode(found -> true);

        list = items("");
        events.add(event("DELETED", node(9, "", "", "")));
        await(() -> node.latest().isEmpty());
        list = items(node(1, "", "\"young\":\"\"", ""));
        events.add("");

        awaitNode(found -> found.annotations().containsKey("young"));
    }

    @Test
    void afterARestoreOfEtcdTheOlderNodeOfAListCountsAndSoDoItsEvents() throws Exception {
        list = items(node(500, "", "\"young\":\"\"", ""));
        events.add(""); // ends the watch
        awaitNode(found -> found.annotations().containsKey("young"));

        list = items(node(7, "", "\"restored\":\"\"", ""));
        events.add(""); // ends the watch

        awaitNode(found -> found.annotations().containsKey("restored"));
        events.add(event("MODIFIED", node(8, "", "\"later\":\"\"", "")));
        awaitNode(found -> found.annotations().containsKey("later"));
    }

    @Test
    void theAnswerToAWriteCountsAlsoWhereEtcdWasRestoredAndNoListHasShownIt() throws Exception {
        list = items(node(500, "", "\"young\":\"\"", ""));
        events.add(""); // ends the watch
        awaitNode(found -> found.annotations().containsKey("young"));

        node.patchMetadata(MetadataPatch.set(Map.of(), Map.of("a", "b"))); // answered with version 50

        assertThat(node.latest().orElseThrow().annotations()).containsKey("written");
    }

    @Test
    void aListThatWasSentBeforeAWriteWasAnsweredDoesNotHideTheWrite() throws Exception {
        awaitNode(found -> true);
        duringList = () -> {
            try {
                node.patchMetadata(MetadataPatch.set(Map.of(), Map.of("a", "b")));
            } catch (NodeWriteException e) {
                throw new IllegalStateException(e);
            }
        };
        list = items(node(40, "", "\"stale\":\"\"", ""));

        events.add(""); // ends the watch

        awaitNode(found -> found.annotations().containsKey("written"));
        events.add(event("MODIFIED", node(90, "", "\"new\":\"\"", ""))); // after the list was stored, or ignored
        var seen = new CopyOnWriteArrayList<Map<String, String>>();
        await(() -> {
            node.latest().map(NodeView::annotations).ifPresent(seen::add);
            return seen.getLast().containsKey("new");
        });
        assertThat(seen).noneMatch(annotations -> annotations.containsKey("stale"));
    }

    @Test
    void aWatchWithoutAnEndIsReplacedByAListWithinAMinute() throws Exception {
        awaitNode(found -> true);
        events.add(event("MODIFIED", node(8, "", "\"watched\":\"\"", "")));
        awaitNode(found -> found.annotations().containsKey("watched"));
        list = items(node(9, "", "\"after\":\"\"", "")); // the watch tells nothing of it

        clock.set(Duration.ofSeconds(46).toNanos());

        awaitNode(found -> found.annotations().containsKey("after"));
        assertThat(requests)
                .filteredOn(request -> request.contains("timeoutSeconds="))
                .allMatch(request -> request.matches(".*timeoutSeconds=(2\\d|3\\d|40)&.*"));
    }

    @Test
    void anAnswerThatStopsInItsMiddleIsGivenUp() throws Exception {
        stopsInTheMiddle = true;
        try (var other = client("node3", Duration.ofMillis(300))) {
            await(() -> requests.stream().anyMatch(request -> request.contains("node3")));
            assertThatThrownBy(() -> other.patchMetadata(MetadataPatch.set(Map.of(), Map.of("a", "b"))))
                    .isInstanceOf(NodeWriteException.class)
                    .hasMessageContaining("did not answer /api/v1/nodes/node3 within PT0.3S");
            stopsInTheMiddle = false;

            await(() -> other.latest().isPresent());
        }
    }

    @Test
    void listsAgainAfterAWatchError() throws Exception {
        awaitNode(found -> true);
        list = items(node(20, "", "\"after\":\"\"", ""));

        events.add("{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n");

        awaitNode(found -> found.annotations().containsKey("after"));
    }

    @Test
    void patchesContainOnlyWhatChanges() throws Exception {
        node.patchMetadata(MetadataPatch.set(Map.of(), Map.of("aliquot.io/gpus", "{\"version\":1}")));
        node.setExtendedResources(Map.of("nvidia.com/gpumem", 163_840L, "nvidia.com/gpucores", 200L));

        assertThat(requests)
                .anySatisfy(request -> assertThat(request)
                        .startsWith("PATCH /api/v1/nodes/node1 application/merge-patch+json Bearer first ")
                        .endsWith("{\"metadata\":{\"annotations\":{\"aliquot.io/gpus\":\"{\\\"version\\\":1}\"}}}"))
                .anySatisfy(request -> assertThat(request)
                        .startsWith("PATCH /api/v1/nodes/node1/status application/merge-patch+json")
                        .endsWith("{\"status\":{\"capacity\":{\"nvidia.com/gpucores\":\"200\",\"nvidia.com/gpumem\":"
                                + "\"163840\"},\"allocatable\":{\"nvidia.com/gpucores\":\"200\",\"nvidia.com/gpumem\":"
                                + "\"163840\"}}}"));
    }

    @Test
    void aConditionIsMergedByItsType() throws Exception {
        node.setCondition(new NodeCondition("GpusGood", false, "GPUBad", "one is bad", Instant.EPOCH));
        node.removeCondition("GpusGood");

        assertThat(requests)
                .anySatisfy(request -> assertThat(request)
                        .startsWith("PATCH /api/v1/nodes/node1/status application/strategic-merge-patch+json")
                        .endsWith("{\"status\":{\"conditions\":[{\"type\":\"GpusGood\",\"status\":\"False\","
                                + "\"reason\":\"GPUBad\",\"message\":\"one is bad\","
                                + "\"lastTransitionTime\":\"1970-01-01T00:00:00Z\"}]}}"))
                .anySatisfy(request -> assertThat(request)
                        .endsWith("{\"status\":{\"conditions\":[{\"$patch\":\"delete\",\"type\":\"GpusGood\"}]}}"));
    }

    @Test
    void readsTheConditionsOfTheNode() throws Exception {
        NodeView view = NodeView.parse(new JsonMapper().readTree("""
                {"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":"m",
                "lastTransitionTime":"2026-11-26T16:00:00Z"},{"type":"Odd"}]}}"""));

        assertThat(view.conditions())
                .isEqualTo(Map.of(
                        "Ready",
                        new NodeCondition("Ready", true, "KubeletReady", "m", Instant.parse("2026-11-26T16:00:00Z")),
                        "Odd",
                        new NodeCondition("Odd", false, "", "", Instant.EPOCH)));
    }

    @Test
    void readsTheTokenForEachRequest() throws Exception {
        node.patchMetadata(MetadataPatch.set(Map.of(), Map.of("a", "b")));

        Files.writeString(token, "second");
        node.patchMetadata(MetadataPatch.set(Map.of(), Map.of("a", "c")));

        assertThat(requests)
                .filteredOn(request -> request.startsWith("PATCH"))
                .last()
                .asString()
                .contains("Bearer second");
    }

    @Test
    void aRejectedPatchThrowsTheMessageOfTheApiServer() {
        patchStatus = 403;

        assertThatThrownBy(() -> node.patchMetadata(MetadataPatch.set(Map.of(), Map.of("a", "b"))))
                .isInstanceOf(NodeWriteException.class)
                .hasMessage(
                        "cannot write to node node1: the API server answered 403 to /api/v1/nodes/node1: not yours");
    }

    @Test
    void aClusterPolicyOrAGpuClusterSaysThatTheGpuOperatorIsInstalled() {
        assertThat(node.hasGpuOperator()).as("neither kind is known").hasValue(false);

        operatorSettings.put("/apis/nvidia.com/v1/clusterpolicies", "{\"items\":[]}");
        assertThat(node.hasGpuOperator()).hasValue(false);
        operatorSettings.put("/apis/nvidia.com/v1alpha1/gpuclusters", "{\"items\":[{}]}");
        assertThat(node.hasGpuOperator()).hasValue(true);
        operatorSettings.put("/apis/nvidia.com/v1/clusterpolicies", "");
        assertThat(node.hasGpuOperator()).as("no right to list them").isEmpty();
    }

    @Test
    void outsideAPodTheErrorNamesTheMissingEnvironment(@TempDir Path account) {
        assertThatThrownBy(() -> ApiServerClient.ofPod(Map.of(), account))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining("KUBERNETES_SERVICE_HOST")
                .hasMessageContaining("runs in a pod");
        assertThatThrownBy(() -> ApiServerClient.ofPod(
                        Map.of("KUBERNETES_SERVICE_HOST", "fd00::1", "KUBERNETES_SERVICE_PORT", "443"), account))
                .isInstanceOf(NoSuchFileException.class)
                .hasMessageContaining("ca.crt");
    }

    private NodeView awaitNode(Predicate<NodeView> wanted) throws Exception {
        await(() -> node.latest().filter(wanted).isPresent());
        return node.latest().orElseThrow();
    }

    private void answer(HttpExchange exchange) throws IOException {
        try (exchange) {
            if (exchange.getRequestURI().getPath().startsWith("/apis/nvidia.com/")) {
                String found =
                        operatorSettings.getOrDefault(exchange.getRequestURI().getPath(), "404 page not found");
                send(exchange, found.startsWith("{") ? 200 : found.isEmpty() ? 403 : 404, found);
                return;
            }
            if (exchange.getRequestURI().getPath().startsWith("/apis/resource.k8s.io/")) {
                answerSlices(exchange);
                return;
            }
            String body = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
            requests.add(exchange.getRequestMethod() + " " + exchange.getRequestURI() + " "
                    + String.join(" ", exchange.getRequestHeaders().getOrDefault("Content-Type", List.of())) + " "
                    + String.join(" ", exchange.getRequestHeaders().getOrDefault("Authorization", List.of())) + " "
                    + body);
            if (stopsInTheMiddle) {
                exchange.sendResponseHeaders(200, 100);
                exchange.getResponseBody().write('{');
                exchange.getResponseBody().flush();
                events.take();
            } else if (exchange.getRequestMethod().equals("PATCH")) {
                send(
                        exchange,
                        patchStatus,
                        patchStatus == 200 ? node(50, "", "\"written\":\"\"", "") : "{\"message\":\"not yours\"}");
            } else if (exchange.getRequestURI().toString().contains("watch=true")) {
                exchange.sendResponseHeaders(200, 0);
                exchange.getResponseBody().flush();
                String event = events.take();
                while (!event.isEmpty()) {
                    exchange.getResponseBody().write(event.getBytes(StandardCharsets.UTF_8));
                    exchange.getResponseBody().flush();
                    event = events.take();
                }
            } else {
                String answer = list;
                duringList.run();
                send(exchange, 200, answer);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void answerSlices(HttpExchange exchange) throws IOException, InterruptedException {
        sliceRequests.add(exchange.getRequestURI().toString());
        if (exchange.getRequestURI().toString().contains("watch=true")) {
            exchange.sendResponseHeaders(200, 0);
            exchange.getResponseBody().write(sliceEvents.take().getBytes(StandardCharsets.UTF_8));
        } else {
            String found = slices.isEmpty() ? "404 page not found" : slices;
            send(exchange, found.startsWith("{") ? 200 : slices.isEmpty() ? 404 : 403, found);
        }
    }

    private static void send(HttpExchange exchange, int status, String text) throws IOException {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(status, bytes.length);
        exchange.getResponseBody().write(bytes);
    }

    private static String items(String nodes) {
        return "{\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[" + nodes + "]}";
    }

    private static String event(String type, String node) {
        return "{\"type\":\"" + type + "\",\"object\":" + node + "}\n";
    }

    private static String node(int version, String labels, String annotations, String resources) {
        return "{\"metadata\":{\"name\":\"node1\",\"uid\":\"u\",\"resourceVersion\":\"" + version + "\",\"labels\":{"
                + labels
                + "},\"annotations\":{" + annotations + "}},\"status\":{\"capacity\":{" + resources
                + "},\"allocatable\":{" + resources + "}}}";
    }
}
