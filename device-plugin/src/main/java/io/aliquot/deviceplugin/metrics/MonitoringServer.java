package io.aliquot.deviceplugin.metrics;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.function.Supplier;

/** {@code /livez}, {@code /readyz} and {@code /metrics} over plain HTTP; anything else is 404. */
public final class MonitoringServer implements AutoCloseable {
    private static final int OK = 200;
    private static final int NOT_FOUND = 404;
    private static final int METHOD_NOT_ALLOWED = 405;
    private static final int UNAVAILABLE = 503;

    private final HttpServer server;

    /**
     * Serves.
     *
     * @param port 0 for any free one
     * @param live what is wrong with this process, for which it should be restarted; empty for nothing
     * @param ready what it still waits for; empty for nothing
     * @throws IOException if the port is taken
     */
    public MonitoringServer(int port, AgentMetrics metrics, Supplier<String> live, Supplier<String> ready)
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
                    case "/livez" -> health(exchange, live.get());
                    case "/readyz" -> health(exchange, ready.get());
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

    private static void health(HttpExchange exchange, String trouble) throws IOException {
        answer(
                exchange,
                trouble.isEmpty() ? OK : UNAVAILABLE,
                "text/plain",
                trouble.isEmpty() ? "ok\n" : trouble + "\n");
    }

    private static void answer(HttpExchange exchange, int status, String type, String text) throws IOException {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", type);
        exchange.sendResponseHeaders(status, body.length);
        exchange.getResponseBody().write(body);
    }
}
