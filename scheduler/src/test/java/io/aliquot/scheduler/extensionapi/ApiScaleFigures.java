package io.aliquot.scheduler.extensionapi;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.testing.Tls;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import javax.net.ssl.SSLContext;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestMethodOrder;
import org.junit.jupiter.api.io.TempDir;

/**
 * Measures the aggregated API of a replica with 5,000 nodes of eight GPUs and 50,000 shares, which runs in a process of
 * its own with the settings of the image: {@code ./mvnw -pl scheduler -am test -Dtest=ApiScaleFigures
 * -Dsurefire.failIfNoSpecifiedTests=false}. Not part of {@code verify}.
 */
@TestMethodOrder(MethodOrderer.OrderAnnotation.class)
class ApiScaleFigures {
    private static final int NODES = 5000;
    private static final int SHARES = 50_000;
    private static final int PAGE = 500;
    private static final int WATCHERS = 50;
    private static final int TURNS = 6;
    private static final Duration TURN = Duration.ofSeconds(10);
    private static final Duration WARM_UP = Duration.ofSeconds(20);
    private static final String ROOT = "/apis/gpu.aliquot.io/v1alpha1/";
    private static final String TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    private static final Pattern CONTINUE = Pattern.compile("\"continue\":\"([^\"]+)\"");
    private static final Pattern BOUND = Pattern.compile("\"type\":\"MODIFIED\".*\"name\":\"(train-[0-9]+)\".*\""
            + ApiScaleProgram.ALLOCATED + "\":\"([0-9]+)\".*\"phase\":\"Bound\"");
    /** What the watchers watch, in turn. */
    private static final List<String> WATCHED =
            List.of("gpushares", "gpus", "gpushares", "gpunodes", "namespaces/team-1/gpushares");

    private static Process replica;
    private static BufferedReader answers;
    private static Writer commands;
    private static int apiPort;
    private static int extenderPort;
    private static SSLContext tls;
    private static HttpClient client;

    /** CPU of the replica in percent of a core, and the latency of Filter requests, in a turn. */
    private record Turn(double cpu, List<Long> filterMicros) {}

    @BeforeAll
    static void start(@TempDir Path folder) throws Exception {
        var frontProxies = new Authority("front-proxy-ca");
        Path pem = folder.resolve("front-proxy-ca.crt");
        Files.writeString(pem, frontProxies.pem());
        var command = new ArrayList<String>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        Files.readAllLines(Path.of("java.options")).stream()
                .filter(line -> line.startsWith("-"))
                .filter(option -> !option.contains("RAMPercentage"))
                .forEach(command::add);
        command.addAll(List.of(
                "-Xmx512m",
                "-cp",
                System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")),
                ApiScaleProgram.class.getName(),
                pem.toString(),
                Integer.toString(NODES),
                Integer.toString(SHARES)));
        replica = new ProcessBuilder(command)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        answers = replica.inputReader(UTF_8);
        commands = new OutputStreamWriter(replica.getOutputStream(), UTF_8);
        String[] ports = answer().split(" ", -1);
        apiPort = Integer.parseInt(ports[0]);
        extenderPort = Integer.parseInt(ports[1]);
        Authority.Identity identity = frontProxies.client(ApiScaleProgram.CLIENT);
        tls = Tls.anyServer(identity.key(), identity.certificate());
        client = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .sslContext(tls)
                .build();
    }

    @AfterAll
    static void stop() throws Exception {
        client.close();
        commands.write("exit\n");
        commands.flush();
        if (!replica.waitFor(30, TimeUnit.SECONDS)) {
            replica.destroyForcibly();
        }
    }

    @Test
    @Order(1)
    void pagesOf500() throws Exception {
        publish(
                "the first pages of 500 gpushares after a start",
                "%.0f ms, %.0f ms, %.0f ms"
                        .formatted(allPages("gpushares", "application/json").stream()
                                .limit(3)
                                .toArray()));
        publish("heap in use with all objects listed", heap() + " MiB");
        for (String resource : List.of("gpushares", "gpus", "gpunodes")) {
            for (String accept : List.of("application/json", TABLE)) {
                allPages(resource, accept); // warm-up
                List<Double> times = Stream.concat(
                                allPages(resource, accept).stream(), allPages(resource, accept).stream())
                        .sorted()
                        .toList();
                publish(
                        "page of 500 " + resource + (accept.equals(TABLE) ? " as a table" : ""),
                        "median %.1f ms, maximum %.1f ms of %d"
                                .formatted(times.get(times.size() / 2), times.getLast(), times.size()));
            }
        }
        publish("heap in use afterwards", heap() + " MiB");
    }

    /** Milliseconds for each page. */
    private static List<Double> allPages(String resource, String accept) throws Exception {
        var times = new ArrayList<Double>();
        String next = "";
        do {
            long begin = System.nanoTime();
            HttpResponse<String> page = client.send(
                    request(resource + "?limit=" + PAGE + (next.isEmpty() ? "" : "&continue=" + next), accept),
                    BodyHandlers.ofString());
            times.add((System.nanoTime() - begin) / 1e6);
            assertThat(page.statusCode()).as(page.body()).isEqualTo(200);
            Matcher token = CONTINUE.matcher(
                    page.body().substring(0, Math.min(1000, page.body().length())));
            next = token.find() ? token.group(1) : "";
        } while (!next.isEmpty());
        return times;
    }

    @Test
    @Order(2)
    void fiftyWatchers() throws Exception {
        for (int rate : List.of(10, 100)) {
            command("rate " + rate);
            String at = " with %d pods/s that come and go".formatted(rate);
            var cpu = new ArrayList<Double>();
            var without = new ArrayList<Long>();
            var with = new ArrayList<Long>();
            try (var watchers = new Watchers(WATCHERS)) {
                turn(WARM_UP);
                assertThat(watchers.received.get()).isPositive();
            }
            var latencies = new ArrayList<Long>();
            long received = 0;
            for (int i = 0; i < TURNS; i++) {
                Turn alone = turn(TURN);
                try (var watchers = new Watchers(WATCHERS)) {
                    Turn watched = turn(TURN);
                    cpu.add(watched.cpu() - alone.cpu());
                    without.addAll(alone.filterMicros());
                    with.addAll(watched.filterMicros());
                    latencies.addAll(watchers.latencies);
                    received += watchers.received.get();
                }
            }
            command("rate 0");
            cpu.sort(null);
            publish(
                    "50 watchers" + at + ": CPU",
                    "%.1f %% of a core, median of %d turns (%.1f to %.1f)"
                            .formatted(cpu.get(TURNS / 2), TURNS, cpu.getFirst(), cpu.getLast()));
            publish(
                    "50 watchers" + at + ": received",
                    "%.0f KiB/s".formatted(received / 1024.0 / TURNS / TURN.toSeconds()));
            publish("from an allocation to a watcher" + at, percentiles(latencies, 1000) + " ms");
            publish("Filter of 5,000 names" + at + ", no watcher", percentiles(without, 1000) + " ms");
            publish("Filter of 5,000 names" + at + ", 50 watchers", percentiles(with, 1000) + " ms");
        }
    }

    private static String percentiles(List<Long> values, double unit) {
        List<Long> sorted = values.stream().sorted().toList();
        assertThat(sorted).hasSizeGreaterThan(100);
        return "p50 %.2f, p99 %.2f, maximum %.1f"
                .formatted(
                        sorted.get(sorted.size() / 2) / unit,
                        sorted.get(sorted.size() * 99 / 100) / unit,
                        sorted.getLast() / unit);
    }

    @Test
    @Order(3)
    void eightListsOfAllSharesAtOnce() throws Exception {
        var lists = new ArrayList<CompletableFuture<HttpResponse<Void>>>();
        for (int i = 0; i < 8; i++) {
            lists.add(client.sendAsync(request("gpushares", "application/json"), BodyHandlers.discarding()));
        }
        long begin = System.nanoTime();
        for (CompletableFuture<HttpResponse<Void>> list : lists) {
            assertThat(list.join().statusCode()).isEqualTo(200);
        }
        publish(
                "8 lists of 50,000 gpushares at once, without pages, with a heap of 512 MiB",
                "%.1f s".formatted((System.nanoTime() - begin) / 1e9));
    }

    /** Each one begins with all objects, and reads none of them. */
    @Test
    @Order(4)
    void fiftyWatchersThatNeverRead() throws Exception {
        command("rate 100");
        var sockets = new ArrayList<Socket>();
        long most = 0;
        try {
            for (int i = 0; i < WATCHERS; i++) {
                sockets.add(open("gpushares?watch=1"));
            }
            for (int i = 0; i < 10; i++) {
                most = Math.max(most, heap());
                TimeUnit.SECONDS.sleep(1);
            }
            List<Double> times = allPages("gpushares", "application/json");
            publish(
                    "page of 500 gpushares beside 50 watchers that never read",
                    "maximum %.1f ms"
                            .formatted(times.stream()
                                    .mapToDouble(Double::doubleValue)
                                    .max()
                                    .orElseThrow()));
        } finally {
            for (Socket socket : sockets) {
                socket.close();
            }
            command("rate 0");
        }
        publish("heap in use beside 50 watchers that never read, of 512 MiB at most", most + " MiB");
    }

    private static long heap() throws IOException {
        return Long.parseLong(command("heap"));
    }

    private static String command(String line) throws IOException {
        commands.write(line + "\n");
        commands.flush();
        return answer();
    }

    private static String answer() throws IOException {
        for (String line = answers.readLine(); line != null; line = answers.readLine()) {
            if (line.startsWith("> ")) {
                return line.substring(2);
            }
            System.out.println(line);
        }
        throw new IOException("the replica ended");
    }

    private static void publish(String name, String number) {
        System.out.println("FIGURE " + name + " | " + number);
    }

    private static HttpRequest request(String path, String accept) {
        return HttpRequest.newBuilder(URI.create("https://localhost:" + apiPort + ROOT + path))
                .header("Accept", accept)
                .header("X-Remote-User", "viewer")
                .build();
    }

    /** Measures for this long while a kube-scheduler asks for nodes. */
    private static Turn turn(Duration time) throws IOException {
        var filterMicros = new ArrayList<Long>();
        try (var scheduler = new FilterClient()) {
            long cpu = cpuNanos();
            long begin = System.nanoTime();
            while (System.nanoTime() - begin < time.toNanos()) {
                long before = System.nanoTime();
                scheduler.filter();
                filterMicros.add((System.nanoTime() - before) / 1000);
                pause(Duration.ofMillis(5));
            }
            return new Turn(100.0 * (cpuNanos() - cpu) / (System.nanoTime() - begin), filterMicros);
        }
    }

    private static long micros() {
        Instant now = Clock.systemUTC().instant();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
    }

    private static void pause(Duration time) {
        try {
            Thread.sleep(time);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static void join(Thread thread) {
        try {
            thread.join();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static long cpuNanos() {
        return replica.info().totalCpuDuration().orElseThrow().toNanos();
    }

    /** The part of kube-scheduler that calls Filter, over one connection. */
    private static final class FilterClient implements AutoCloseable {
        private final HttpClient http = HttpClient.newHttpClient();
        private final List<HttpRequest> requests;
        private int next;

        FilterClient() {
            String names = IntStream.range(0, NODES)
                    .mapToObj("gpu-node-%05d"::formatted)
                    .collect(Collectors.joining("\",\"", "[\"", "\"]"));
            requests = IntStream.range(0, 100)
                    .mapToObj(i -> HttpRequest.newBuilder(URI.create("http://localhost:" + extenderPort + "/filter"))
                            .header("Content-Type", "application/json")
                            .POST(HttpRequest.BodyPublishers.ofString("{\"Pod\": "
                                    + ExtenderFixture.podJson(
                                            "pod-" + i, ExtenderFixture.mebibytes(2000 + 500 * (i % 4)), "")
                                    + ", \"Nodes\": null, \"NodeNames\": " + names + "}"))
                            .build())
                    .toList();
        }

        void filter() throws IOException {
            try {
                HttpResponse<String> answer =
                        http.send(requests.get(next++ % requests.size()), BodyHandlers.ofString());
                assertThat(answer.statusCode()).isEqualTo(200);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }

        @Override
        public void close() {
            http.close();
        }
    }

    /** Clients that watch from now on and read everything. */
    private static final class Watchers implements AutoCloseable {
        final ConcurrentLinkedQueue<Long> latencies = new ConcurrentLinkedQueue<>();
        final AtomicLong received = new AtomicLong();
        private final List<Socket> sockets = new ArrayList<>();
        private final List<Thread> threads = new ArrayList<>();
        private final InputStream measured;

        Watchers(int count) throws Exception {
            String version = version();
            measured = client.send(
                            request("gpushares?watch=1&resourceVersion=" + version, "application/json"),
                            BodyHandlers.ofInputStream())
                    .body();
            threads.add(Thread.ofPlatform().start(this::measure));
            for (int i = 1; i < count; i++) {
                Socket socket = open(WATCHED.get(i % WATCHED.size()) + "?watch=1&resourceVersion=" + version);
                sockets.add(socket);
                threads.add(Thread.ofPlatform().start(() -> discard(socket)));
            }
        }

        private static String version() throws Exception {
            String list = client.send(request("gpunodes?limit=1", "application/json"), BodyHandlers.ofString())
                    .body();
            Matcher version =
                    Pattern.compile("\"resourceVersion\":\"([0-9]+)\"").matcher(list);
            assertThat(version.find()).isTrue();
            return version.group(1);
        }

        private void discard(Socket socket) {
            try {
                InputStream in = socket.getInputStream();
                var buffer = new byte[1 << 16];
                for (int read = in.read(buffer); read >= 0; read = in.read(buffer)) {
                    received.addAndGet(read);
                }
            } catch (SocketException e) {
                // closed
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        private void measure() {
            Set<String> seen = new HashSet<>();
            long begin = micros(); // the watch begins with what happened since the list
            try (var lines = new BufferedReader(new InputStreamReader(measured, UTF_8))) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    received.addAndGet(line.length());
                    Matcher bound = BOUND.matcher(line);
                    if (bound.find() && Long.parseLong(bound.group(2)) > begin && seen.add(bound.group(1))) {
                        latencies.add(micros() - Long.parseLong(bound.group(2)));
                    }
                }
            } catch (IOException e) {
                // closed
            }
        }

        @Override
        public void close() throws IOException {
            for (Socket socket : sockets) {
                socket.close();
            }
            measured.close();
            threads.forEach(ApiScaleFigures::join);
        }
    }

    private static Socket open(String path) throws IOException {
        Socket socket = tls.getSocketFactory().createSocket(InetAddress.getLoopbackAddress(), apiPort);
        socket.getOutputStream()
                .write(("GET " + ROOT + path + " HTTP/1.1\r\nHost: a\r\nAccept: application/json\r\n"
                                + "X-Remote-User: viewer\r\n\r\n")
                        .getBytes(UTF_8));
        return socket;
    }
}
