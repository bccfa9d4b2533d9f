package io.aliquot.deviceplugin.report;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsParameters;
import com.sun.net.httpserver.HttpsServer;
import io.aliquot.api.names.FormatException;
import io.aliquot.api.usage.UsageHistory;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.deviceplugin.problem.Problem;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.Supplier;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import org.jspecify.annotations.Nullable;

/**
 * Serves {@value UsageReport#PATH} and {@value UsageHistory#PATH} to clients that the Secret's {@code ca.crt} lists, over
 * mutual TLS. Serves nothing until the Secret's files exist, and follows their changes.
 */
public final class ReportServer implements AutoCloseable {
    private static final Logger LOG = System.getLogger(ReportServer.class.getName());
    private static final Duration RELOAD = Duration.ofSeconds(10);

    /** Each replica of the scheduler has at most a few connections. */
    private static final int THREADS = 4;

    private static final int BACKLOG = 16;
    private static final int OK = 200;
    private static final int NOT_FOUND = 404;
    private static final int METHOD_NOT_ALLOWED = 405;
    private static final int UNAVAILABLE = 503;
    private static final String GPU = "gpu=";

    private final int port;
    private final Path folder;
    private final Supplier<Optional<UsageReport>> report;
    private final Function<String, Optional<UsageHistory>> history;
    private final Problem problem = new Problem(LOG, Level.WARNING);
    private final ScheduledExecutorService reloads = Executors.newSingleThreadScheduledExecutor(threads("tls-files"));
    private final ExecutorService requests = Executors.newFixedThreadPool(THREADS, threads("report"));
    private @Nullable TlsFiles files;
    private @Nullable HttpsServer server;

    /**
     * Waits for the Secret's files, then serves.
     *
     * @param port 0 for any free one
     * @param folder of the Secret's files; they may appear later
     * @param report empty while there are no figures
     * @param history of a GPU by its UUID; empty if there is no such GPU
     */
    public ReportServer(
            int port,
            Path folder,
            Supplier<Optional<UsageReport>> report,
            Function<String, Optional<UsageHistory>> history) {
        this.port = port;
        this.folder = folder;
        this.report = report;
        this.history = history;
    }

    /** Begins to look for the Secret's files. */
    public void start() {
        var unused = reloads.scheduleWithFixedDelay(this::reload, 0, RELOAD.toSeconds(), TimeUnit.SECONDS);
    }

    /** The port; empty as long as nothing is served. */
    synchronized Optional<Integer> port() {
        return Optional.ofNullable(server).map(open -> open.getAddress().getPort());
    }

    /** Reads the Secret's files, and serves with them if they have changed. What cannot be read changes nothing. */
    synchronized void reload() {
        try {
            TlsFiles found = TlsFiles.read(folder);
            if (!found.equals(files)) {
                serve(found.context());
                files = found;
            }
            problem.resolve();
        } catch (NoSuchFileException e) {
            problem.report("cannot serve usage to the scheduler: " + e.getMessage()
                    + " does not exist; the scheduler creates the Secret, retrying");
        } catch (IOException | FormatException e) {
            problem.report("cannot serve usage to the scheduler, retrying: " + e.getMessage());
        }
    }

    /** Replaces the server, because a started one keeps its certificates and sessions. */
    private void serve(SSLContext context) throws IOException {
        if (server != null) {
            server.stop(0);
        }
        server = HttpsServer.create(new InetSocketAddress(port), BACKLOG);
        server.setHttpsConfigurator(new HttpsConfigurator(context) {
            @Override
            public void configure(HttpsParameters parameters) {
                SSLParameters needed = getSSLContext().getDefaultSSLParameters();
                needed.setNeedClientAuth(true);
                parameters.setSSLParameters(needed);
            }
        });
        server.setExecutor(requests);
        server.createContext("/", this::handle);
        server.start();
    }

    private void handle(HttpExchange exchange) throws IOException {
        try (exchange) {
            if (!exchange.getRequestMethod().equals("GET")) {
                refuse(exchange, METHOD_NOT_ALLOWED, "GET only");
                return;
            }
            String query =
                    Optional.ofNullable(exchange.getRequestURI().getRawQuery()).orElse("");
            switch (exchange.getRequestURI().getRawPath()) {
                case UsageReport.PATH -> {
                    Optional<UsageReport> now = report.get();
                    if (now.isPresent()) {
                        answer(exchange, OK, now.get().print());
                    } else {
                        refuse(exchange, UNAVAILABLE, "NVML does not answer");
                    }
                }
                case UsageHistory.PATH -> {
                    Optional<UsageHistory> found =
                            query.startsWith(GPU) ? history.apply(query.substring(GPU.length())) : Optional.empty();
                    if (found.isPresent()) {
                        answer(exchange, OK, found.get().print());
                    } else {
                        refuse(exchange, NOT_FOUND, "expected ?gpu= with the UUID of a GPU of this node");
                    }
                }
                default -> refuse(exchange, NOT_FOUND, "try " + UsageReport.PATH + " or " + UsageHistory.PATH);
            }
        }
    }

    private static void refuse(HttpExchange exchange, int status, String sentence) throws IOException {
        answer(exchange, status, "{\"error\":\"" + sentence + "\"}");
    }

    private static void answer(HttpExchange exchange, int status, String json) throws IOException {
        byte[] body = json.getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(status, body.length);
        exchange.getResponseBody().write(body);
    }

    private static ThreadFactory threads(String name) {
        return task -> {
            var thread = new Thread(task, name);
            thread.setDaemon(true);
            return thread;
        };
    }

    @Override
    public void close() {
        reloads.shutdownNow();
        synchronized (this) {
            if (server != null) {
                server.stop(0);
            }
        }
        requests.shutdownNow();
    }
}
