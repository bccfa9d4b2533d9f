package io.aliquot.deviceplugin.monitoring;

import io.aliquot.deviceplugin.http.HttpPort;
import io.aliquot.deviceplugin.http.HttpPort.Answer;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import java.io.IOException;
import java.util.List;
import java.util.Optional;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;

/** Serves {@code /livez}, {@code /readyz} and {@code /metrics} over plain HTTP; any other path is 404. */
public final class MonitoringServer implements AutoCloseable {
    private static final int OK = 200;
    private static final int NOT_FOUND = 404;
    private static final int UNAVAILABLE = 503;
    private static final String TEXT = "text/plain";

    private final HttpPort http;

    /**
     * Starts to serve.
     *
     * @param port 0 for any free port
     * @param liveness the problems for which this process should be restarted; none: alive
     * @param readiness the problems that keep this node from taking GPU pods, for the reader of the answer
     * @param ready whether this process does its work, as the answer's code says
     * @throws IOException if the port is in use
     */
    public MonitoringServer(
            int port,
            AgentMetrics metrics,
            Supplier<List<String>> liveness,
            Supplier<List<String>> readiness,
            BooleanSupplier ready)
            throws IOException {
        try {
            http = new HttpPort(port, Optional.empty(), request -> switch (request.path()) {
                case "/livez" -> probe(false, liveness.get());
                case "/readyz" -> probe(ready.getAsBoolean(), readiness.get());
                case "/metrics" -> new Answer(OK, TEXT + "; version=0.0.4; charset=utf-8", metrics.print());
                default -> new Answer(NOT_FOUND, TEXT, "try /livez, /readyz or /metrics\n");
            });
        } catch (IOException e) {
            throw new IOException(
                    "cannot serve health and metrics on port " + port + " (" + e.getMessage()
                            + "); set ALIQUOT_METRICS_PORT to a free one",
                    e);
        }
    }

    public int port() {
        return http.port();
    }

    @Override
    public void close() {
        http.close();
    }

    private static Answer probe(boolean ok, List<String> problems) {
        return problems.isEmpty()
                ? new Answer(OK, TEXT, "ok\n")
                : new Answer(ok ? OK : UNAVAILABLE, TEXT, String.join("\n", problems) + "\n");
    }
}
