package io.aliquot.deviceplugin.report;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.CertificateDigest;
import io.aliquot.api.tls.PinnedTrust;
import io.aliquot.api.tls.TlsContext;
import io.aliquot.api.usage.UsageHistory;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.deviceplugin.http.HttpPort;
import io.aliquot.deviceplugin.http.HttpPort.Answer;
import io.aliquot.deviceplugin.http.HttpPort.Request;
import io.aliquot.deviceplugin.periodic.PeriodicTask;
import io.aliquot.deviceplugin.problem.Problem;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.security.GeneralSecurityException;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.util.Optional;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;
import javax.net.ssl.SSLContext;
import org.jspecify.annotations.Nullable;

/**
 * Serves {@value UsageReport#PATH} and {@value UsageHistory#PATH} over mutual TLS to the clients that the scheduler
 * names on the Node. Serves nothing until it does, and follows its changes.
 */
public final class ReportServer implements AutoCloseable {
    private static final Logger LOG = System.getLogger(ReportServer.class.getName());
    private static final Duration RELOAD = Duration.ofMillis(500);

    private static final int OK = 200;
    private static final int NOT_FOUND = 404;
    private static final int UNAVAILABLE = 503;
    private static final String GPU = "gpu=";

    private final int port;
    private final Supplier<Optional<String>> named;
    private final AgentCertificate certificate;
    private final Supplier<Optional<UsageReport>> report;
    private final Supplier<Optional<Set<String>>> pods;
    private final Function<String, Optional<UsageHistory>> history;
    private final Consumer<String> allocation;
    private final Problem problem = new Problem(LOG, Level.WARNING);
    private final PeriodicTask reloads = new PeriodicTask("clients", RELOAD, this::reload);
    /** The clients that are answered, by the digests of their certificates. */
    private @Nullable Set<String> clients;

    private @Nullable HttpPort server;

    /**
     * Waits for clients, then serves.
     *
     * @param port 0 for any free one
     * @param named the Node's {@value Annotations#AGENT_CLIENTS}, now; must not block
     * @param certificate to serve with
     * @param report empty while there are no figures
     * @param pods the UIDs of all pods that have a cgroup; empty if that is not known. Read on demand
     * @param history of a GPU by its UUID; empty if there is no such GPU
     * @param allocation takes what the scheduler says of this node; must not block
     */
    public ReportServer(
            int port,
            Supplier<Optional<String>> named,
            AgentCertificate certificate,
            Supplier<Optional<UsageReport>> report,
            Supplier<Optional<Set<String>>> pods,
            Function<String, Optional<UsageHistory>> history,
            Consumer<String> allocation) {
        this.port = port;
        this.named = named;
        this.certificate = certificate;
        this.report = report;
        this.pods = pods;
        this.history = history;
        this.allocation = allocation;
    }

    /** Begins to look for clients. */
    public void start() {
        reloads.start();
    }

    /** The port; empty as long as nothing is served. */
    synchronized Optional<Integer> port() {
        return Optional.ofNullable(server).map(HttpPort::port);
    }

    /** Serves the clients that the Node names if they have changed. What cannot be read changes nothing. */
    synchronized void reload() {
        try {
            Optional<String> text = named.get();
            if (text.isEmpty()) {
                if (server == null) {
                    problem.report("cannot serve usage to the scheduler: the node has no annotation "
                            + Annotations.AGENT_CLIENTS + ", which the scheduler writes, retrying");
                }
                return;
            }
            Set<String> found = CertificateDigest.parseList(Annotations.AGENT_CLIENTS, text.get());
            if (!found.equals(clients)) {
                serve(context(found));
                clients = found;
            }
            problem.resolve();
        } catch (IOException | FormatException e) {
            problem.report("cannot serve usage to the scheduler, retrying: " + e.getMessage());
        }
    }

    /** Hosts have no names: pods have addresses. */
    private SSLContext context(Set<String> clients) {
        try {
            return TlsContext.of(
                    TlsContext.presenting(certificate.key(), certificate.certificate()),
                    new PinnedTrust(presented -> check(clients, presented)));
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("cannot use TLS", e);
        }
    }

    private static void check(Set<String> clients, X509Certificate presented) throws CertificateException {
        if (!clients.contains(CertificateDigest.of(presented))) {
            throw new CertificateException("expected the scheduler's certificate, found another");
        }
        presented.checkValidity();
    }

    /** Replaces the server, which ends the connections of the former clients. */
    private void serve(SSLContext context) throws IOException {
        if (server != null) {
            server.close();
        }
        server = new HttpPort(port, Optional.of(context), this::answer);
    }

    private Answer answer(Request request) {
        if (request.path().equals(UsageReport.PATH) && !request.body().isEmpty()) {
            allocation.accept(request.body());
        }
        return switch (request.path()) {
            case UsageReport.PATH ->
                report.get()
                        .map(now -> request.query().equals(UsageReport.WITH_PODS) ? now.withPods(pods.get()) : now)
                        .map(now -> json(OK, now.print()))
                        .orElseGet(() -> refusal(UNAVAILABLE, "NVML does not answer"));
            case UsageHistory.PATH ->
                Optional.of(request.query())
                        .filter(query -> query.startsWith(GPU))
                        .flatMap(query -> history.apply(query.substring(GPU.length())))
                        .map(found -> json(OK, found.print()))
                        .orElseGet(() -> refusal(NOT_FOUND, "expected ?gpu= with the UUID of a GPU of this node"));
            default -> refusal(NOT_FOUND, "try " + UsageReport.PATH + " or " + UsageHistory.PATH);
        };
    }

    private static Answer refusal(int status, String sentence) {
        return json(status, "{\"error\":\"" + sentence + "\"}");
    }

    private static Answer json(int status, String text) {
        return new Answer(status, "application/json", text);
    }

    @Override
    public void close() {
        reloads.close();
        synchronized (this) {
            if (server != null) {
                server.close();
            }
        }
    }
}
