package io.aliquot.deviceplugin.metrics;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.function.Supplier;

/** Serves {@code /livez}, {@code /readyz} and {@code /metrics} over plain HTTP; any other path is 404. */
public final class MonitoringServer implements AutoCloseable {
    private static final int OK = 200;
    private static final int NOT_FOUND = 404;
    private static final int METHOD_NOT_ALLOWED = 405;
    private static final int UNAVAILABLE = 503;

    private final HttpServer server;

    /**
     * Starts to serve.
     *
     * @param port 0 for any free port
     * @param liveness the problems for which this process should be restarted; none: alive
     * @param readiness the problems that keep this node from taking GPU pods; none: ready
     * @throws IOException if the port is in use
     */
    public MonitoringServer(
            int port, AgentMetrics metrics, Supplier<List<String>> liveness, Supplier<List<String>> readiness)
            throws IOException {
        try {
            server = HttpServer.create(new InetSocketAddress(port), 0);
        } catch (IOException e) {
            throw new IOException(
                    "cannot serve health and metrics on port " + port + " (" + e.getMessage()
                            + "); set ALIQUOT_METRICS_PORT to a free one",
                    e);
        }
        server.createContext("/", exchange -> {
            try (exchange) {
                if (!exchange.getRequestMethod().equals("GET")) {
                    answer(exchange, METHOD_NOT_ALLOWED, "text/plain", "GET only\n");
                    return;
                }
                switch (exchange.getRequestURI().getPath()) {
                    case "/livez" -> answerProbe(exchange, liveness.get());
                    case "/readyz" -> answerProbe(exchange, readiness.get());
                    case "/metrics" ->
                        answer(exchange, OK, "text/plain; version=0.0.4; charset=utf-8", metrics.print());
                    default -> answer(exchange, NOT_FOUND, "text/plain", "try /livez, /readyz or /metrics\n");
                }
            }
        });
        server.start();
    }

    public int port() {
        return server.getAddress().getPort();
    }

    @Override
    public void close() {
        server.stop(0);
    }

    private static void answerProbe(HttpExchange exchange, List<String> problems) throws IOException {
        if (problems.isEmpty()) {
            answer(exchange, OK, "text/plain", "ok\n");
        } else {
            answer(exchange, UNAVAILABLE, "text/plain", String.join("\n", problems) + "\n");
        }
    }

    private static void answer(HttpExchange exchange, int status, String type, String text) throws IOException {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", type);
        exchange.sendResponseHeaders(status, body.length);
        exchange.getResponseBody().write(body);
    }
}
