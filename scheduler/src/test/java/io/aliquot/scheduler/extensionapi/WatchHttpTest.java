package io.aliquot.scheduler.extensionapi;

import static io.aliquot.testing.Await.await;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.aliquot.scheduler.extensionapi.ObjectsProgram.Changes;
import io.aliquot.scheduler.extensionapi.machinery.WatchCache;
import io.aliquot.scheduler.extensionapi.machinery.Watches;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.ShareUsage;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes;
import io.aliquot.scheduler.extensionapi.objects.GpuPod.ParsedRequest;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.slf4j.LoggerFactory;
import org.springframework.context.ConfigurableApplicationContext;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** Watches over HTTP. */
@Timeout(60)
class WatchHttpTest {
    private static final String ROOT = "/apis/gpu.aliquot.io/v1alpha1";
    private static final String TEAM = ROOT + "/namespaces/team/gpushares";

    private final HttpClient client = HttpClient.newHttpClient();
    private final List<AutoCloseable> open = new ArrayList<>();
    private ConfigurableApplicationContext context;
    private Changes changes;

    @BeforeEach
    void start() {
        context = ObjectsProgram.start();
        changes = context.getBean(Changes.class);
    }

    @AfterEach
    void stop() throws Exception {
        for (AutoCloseable stream : open) {
            stream.close();
        }
        context.close();
    }

    @Test
    void aWatchContinuesAList() throws Exception {
        String version = list(TEAM).at("/metadata/resourceVersion").asString();
        hold("new", "n1", 100);
        BufferedReader watch = watch(TEAM + "?watch=1&resourceVersion=" + version, "application/json");
        JsonNode added = next(watch);
        assertThat(type(added)).isEqualTo("ADDED new");
        assertThat(added.at("/object/kind").asString()).isEqualTo("GpuShare");
        hold("new", "n1", 200);
        JsonNode modified = next(watch);
        assertThat(type(modified)).isEqualTo("MODIFIED new");
        assertThat(modified.at("/object/spec/containers/0/memoryMiB").asInt()).isEqualTo(200);
        changes.ended("other", "p1-4"); // of another namespace
        changes.ended("team", "new");
        JsonNode deleted = next(watch);
        assertThat(type(deleted)).isEqualTo("DELETED new");
        assertThat(deleted.at("/object/metadata/resourceVersion").asString())
                .isEqualTo(Long.toString(changes.version().get()));
    }

    @Test
    void aWatchWithoutAVersionBeginsWithAllObjects() throws Exception {
        BufferedReader watch = watch(TEAM + "?watch=true", "application/json");
        var names = new TreeSet<String>();
        for (int i = 0; i < 9; i++) {
            names.add(type(next(watch)));
        }
        assertThat(names).hasSize(9).contains("ADDED p1-1", "ADDED p3-3");
    }

    @Test
    void anInformerThatAsksForInitialEventsGetsTheirEndMarked() throws Exception {
        BufferedReader watch = watch(
                TEAM + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
                        + "&fieldSelector=metadata.name%3Dp1-1",
                "application/json");
        assertThat(type(next(watch))).isEqualTo("ADDED p1-1");
        JsonNode end = next(watch);
        assertThat(end.get("type").asString()).isEqualTo("BOOKMARK");
        assertThat(end.at("/object/metadata").toString())
                .isEqualTo("{\"resourceVersion\":\"" + changes.version().get()
                        + "\",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}");
    }

    @Test
    void anObjectThatStopsToMatchTheSelectorIsDeletedForTheWatcher() throws Exception {
        BufferedReader watch = watch(
                TEAM + "?watch=1&labelSelector=app%3Dlive&resourceVersion="
                        + changes.version().get(),
                "application/json");
        changes.pending("live", Gpus.request("APP:main: gpumem=1"), "");
        assertThat(type(next(watch))).isEqualTo("ADDED live");
        hold("live", "n1", 100); // with the labels of the other pods
        assertThat(type(next(watch))).isEqualTo("DELETED live");
    }

    @Test
    void aVersionThatIsTooOldIsAnErrorEvent() throws Exception {
        BufferedReader watch = watch(TEAM + "?watch=1&resourceVersion=1", "application/json");
        JsonNode event = next(watch);
        assertThat(event.get("type").asString()).isEqualTo("ERROR");
        assertThat(event.at("/object/code").asInt()).isEqualTo(410);
        assertThat(event.at("/object/reason").asString()).isEqualTo("Expired");
        assertThat(watch.readLine()).isNull();
    }

    @Test
    void kubectlGetsTheRowsOfChanges() throws Exception {
        BufferedReader watch = watch(
                TEAM + "?watch=1&resourceVersion=" + changes.version().get(),
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
        hold("new", "n1", 100);
        JsonNode event = next(watch);
        assertThat(event.at("/object/kind").asString()).isEqualTo("Table");
        assertThat(event.at("/object/rows/0/cells/0").asString()).isEqualTo("new");
    }

    @Test
    void anAllocationChangesItsGpuAndItsNode() throws Exception {
        JsonNode list = list(ROOT + "/gpus");
        BufferedReader gpus = watch(
                ROOT + "/gpus?watch=1&resourceVersion="
                        + list.at("/metadata/resourceVersion").asString(),
                "application/json");
        BufferedReader nodes = watch(
                ROOT + "/gpunodes?watch=1&resourceVersion=" + changes.version().get(), "application/json");
        hold("new", "n1", 100);
        JsonNode gpu = next(gpus);
        assertThat(type(gpu)).isEqualTo("MODIFIED " + GpuNodes.name(Gpus.uuid(1, 0)));
        assertThat(gpu.at("/object/status/memoryMiB/allocated").asInt()).isEqualTo(30_100);
        assertThat(type(next(nodes))).isEqualTo("MODIFIED n1");
    }

    /** The watch on pods tells the ledger of a pod a moment before it reports the pod's version. */
    @Test
    void aWatchFromTheVersionAtWhichAnotherRequestNoticedAChangeGetsIt() throws Exception {
        String version = list(ROOT + "/gpus").at("/metadata/resourceVersion").asString();
        changes.ledger()
                .observeBound(BoundPods.of(
                        changes.id("team", "new"),
                        "n1",
                        changes.version().get() + 1,
                        BoundPods.main(Gpus.uuid(1, 0), new GpuAmount(100, 0, 1, false))));
        JsonNode noticed = list(ROOT + "/gpus");
        assertThat(noticed.at("/metadata/resourceVersion").asString()).isEqualTo(version);
        assertThat(noticed.at("/items/0/status/memoryMiB/allocated").asInt()).isEqualTo(30_100);

        BufferedReader gpus = watch(ROOT + "/gpus?watch=1&resourceVersion=" + version, "application/json");

        assertThat(type(next(gpus))).isEqualTo("MODIFIED " + GpuNodes.name(Gpus.uuid(1, 0)));
    }

    @Test
    void usageCausesNoEvent() throws Exception {
        BufferedReader watch = watch(
                TEAM + "?watch=1&timeoutSeconds=2&resourceVersion="
                        + changes.version().get(),
                "application/json");
        context.getBean(Figures.class)
                .containers
                .put("uid-p1-2/main/" + Gpus.uuid(1, 0), new ShareUsage(1L, 1, null, null, 1, 0L, 0.0, null));
        assertThat(watch.readLine()).as("the end after timeoutSeconds").isNull();
    }

    @Test
    void aWatcherThatDoesNotReadCostsTheOthersNothing() throws Exception {
        String from = TEAM + "?watch=1&resourceVersion=" + changes.version().get();
        watch(from, "application/json"); // never read
        BufferedReader reader = watch(from, "application/json");
        for (int i = 1; i <= 3000; i++) {
            hold("new", "n1", i);
        }
        int last = 0;
        while (last < 3000) {
            last = next(reader).at("/object/spec/containers/0/memoryMiB").asInt();
        }
    }

    @Test
    void watchersThatNeverReadTakeNoMemoryForWhatTheyMiss() throws Exception {
        changeMoreThanTheLogKeeps();
        long before = heap();
        var sockets = new ArrayList<Socket>();
        try {
            for (int i = 0; i < 50; i++) {
                sockets.add(rawWatch("?watch=1")); // begins with 5,000 objects
            }
            await(() -> context.getBean(Watches.class).count() == sockets.size());
            changeMoreThanTheLogKeeps();

            assertThat(heap() - before).as("MiB more").isLessThan(64);
        } finally {
            for (Socket socket : sockets) {
                socket.close();
            }
        }
    }

    /** Tomcat handles the failed write too, on another thread; both once completed the request, and one failed. */
    @Test
    void clientsThatLeaveCauseNoErrors() throws Exception {
        var errors = new ConcurrentLinkedQueue<String>();
        var log = (Logger) LoggerFactory.getLogger(org.slf4j.Logger.ROOT_LOGGER_NAME);
        var lines = new ListAppender<ILoggingEvent>();
        lines.start();
        log.addAppender(lines);
        var handler = Thread.getDefaultUncaughtExceptionHandler();
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> errors.add(thread.getName() + ": " + error));
        try {
            for (int i = 0; i < 100; i++) {
                Socket socket = rawWatch("?watch=1");
                assertThat(socket.getInputStream().read()).isPositive();
                socket.close();
            }
            var memory = new AtomicInteger();
            await(() -> {
                hold("new", "n1", 1 + memory.incrementAndGet() % 1000);
                return context.getBean(Watches.class).count() == 0;
            });
        } finally {
            Thread.setDefaultUncaughtExceptionHandler(handler);
            log.detachAppender(lines);
        }
        assertThat(errors).isEmpty();
        assertThat(List.copyOf(lines.list))
                .filteredOn(line -> line.getLevel().isGreaterOrEqual(Level.WARN))
                .isEmpty();
    }

    @Test
    void oneUserCannotTakeAllWatches() throws Exception {
        var sockets = new ArrayList<Socket>();
        try {
            for (int i = 0; i < 100; i++) {
                // A right to create service accounts is a right to any number of users.
                sockets.add(rawWatch("?watch=1", "system:serviceaccount:team:robot-" + i));
            }
            await(() -> context.getBean(Watches.class).count() == sockets.size());

            assertThat(statusOfWatch("system:serviceaccount:team:other")).isEqualTo("429");
            assertThat(statusOfWatch("system:serviceaccount:team-2:other")).isEqualTo("200");
            assertThat(statusOfWatch("alice")).isEqualTo("200");
        } finally {
            for (Socket socket : sockets) {
                socket.close();
            }
        }
    }

    private String statusOfWatch(String user) throws IOException {
        try (Socket socket = rawWatch("?watch=1", user)) {
            return new String(socket.getInputStream().readNBytes(12), UTF_8).substring(9);
        }
    }

    @Test
    void allWatchesEndBeforeTheServerStops() throws Exception {
        BufferedReader watch =
                watch(TEAM + "?watch=1&resourceVersion=" + changes.version().get(), "application/json");
        context.getBean(Watches.class).close();
        assertThat(watch.readLine()).isNull();
    }

    private void hold(String name, String node, int memoryMiB) {
        changes.bound(
                "team",
                name,
                node,
                Map.of("app", "train"),
                BoundPods.main(Gpus.uuid(1, 0), new GpuAmount(memoryMiB, 0, 1, false)));
    }

    /** 5,000 pods, each several times. */
    private void changeMoreThanTheLogKeeps() {
        var request = new ParsedRequest.Valid(Gpus.request("APP:main: gpumem=1"));
        for (int i = 0; i < WatchCache.LOG_LENGTH + 1000; i++) {
            changes.put(
                    changes.id("team", "pod-" + i % 5000),
                    changes.version().incrementAndGet(),
                    Map.of("app", "train"),
                    "",
                    0,
                    request,
                    "attempt " + i,
                    List.of());
        }
    }

    /** MiB in use after a collection. */
    private static long heap() {
        System.gc();
        return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed() >> 20;
    }

    private Socket rawWatch(String query) throws IOException {
        return rawWatch(query, "alice");
    }

    private Socket rawWatch(String query, String user) throws IOException {
        var socket = new Socket(
                InetAddress.getLoopbackAddress(),
                URI.create(ObjectsProgram.url(context)).getPort());
        socket.getOutputStream()
                .write(("GET " + TEAM + query + " HTTP/1.1\r\nHost: a\r\nX-Remote-User: " + user + "\r\n\r\n")
                        .getBytes(UTF_8));
        return socket;
    }

    private static String type(JsonNode event) {
        return event.get("type").asString() + " "
                + event.at("/object/metadata/name").asString();
    }

    private static JsonNode next(BufferedReader watch) throws Exception {
        return JsonMapper.shared().readTree(watch.readLine());
    }

    private JsonNode list(String path) throws Exception {
        return JsonMapper.shared()
                .readTree(client.send(request(path, "application/json"), BodyHandlers.ofString())
                        .body());
    }

    private HttpRequest request(String path, String accept) {
        return HttpRequest.newBuilder(URI.create(ObjectsProgram.url(context) + path))
                .header("Accept", accept)
                .build();
    }

    private BufferedReader watch(String path, String accept) throws Exception {
        HttpResponse<java.io.InputStream> answer = client.send(request(path, accept), BodyHandlers.ofInputStream());
        assertThat(answer.statusCode()).isEqualTo(200);
        open.add(answer.body());
        return new BufferedReader(new InputStreamReader(answer.body(), UTF_8));
    }
}
