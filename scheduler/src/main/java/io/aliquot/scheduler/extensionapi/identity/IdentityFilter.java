package io.aliquot.scheduler.extensionapi.identity;

import io.aliquot.api.ports.Portions;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.NotLeading;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.extensionapi.machinery.Watches;
import io.aliquot.scheduler.server.errors.Problems;
import io.aliquot.scheduler.server.health.Readiness;
import io.aliquot.scheduler.server.ports.ServerConfiguration;
import io.aliquot.scheduler.server.ports.TlsCertificate;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpFilter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.security.cert.X509Certificate;
import java.time.Clock;
import java.util.List;
import java.util.Optional;
import java.util.function.Supplier;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.web.servlet.FilterRegistration;
import org.springframework.http.HttpHeaders;
import org.springframework.stereotype.Component;
import org.springframework.util.function.SingletonSupplier;

/*
 * Discovery is answered to any client at any time: it tells nothing that is secret, and while no replica answers it, the
 * API server completes no deletion of a namespace.
 */
/**
 * Identifies the user of each request to the aggregated API, and refuses requests that neither the API server nor another
 * replica sent. Data is served once the replica is ready. Changes are forwarded to the leader, which alone makes them;
 * so are explanations, because it alone knows which nodes kube-scheduler excluded.
 */
@Component
@FilterRegistration(urlPatterns = {"/apis/*", "/openapi/*"})
public final class IdentityFilter extends HttpFilter {
    private static final long serialVersionUID = 1L;
    private static final String CERTIFICATES = "jakarta.servlet.request.X509Certificate";

    private final transient FrontProxyKeeper proxies;
    private final transient TlsCertificate tls;
    private final transient LeaderProxy leader;
    private final transient Cluster cluster;
    private final transient Clock clock;
    private final transient Supplier<List<Readiness>> parts;
    /** A request occupies one while its body comes or its answer is read, however slowly. */
    private final transient Portions threads = new Portions(ServerConfiguration.EXTENSION_API_THREADS, 0);

    IdentityFilter(
            FrontProxyKeeper proxies,
            TlsCertificate tls,
            LeaderProxy leader,
            Cluster cluster,
            Clock clock,
            ObjectProvider<Readiness> readiness) {
        this.proxies = proxies;
        this.tls = tls;
        this.leader = leader;
        this.cluster = cluster;
        this.clock = clock;
        // Once, because the lookup in Spring is slow.
        this.parts = SingletonSupplier.of(() -> readiness.stream().toList());
    }

    @Override
    protected void doFilter(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        if (Discovery.PATHS.contains(request.getRequestURI())) {
            chain.doFilter(request, response);
            return;
        }
        try {
            serve(request, response, chain);
        } catch (StatusException refusal) {
            refuse(request, response, refusal);
        }
    }

    private void serve(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        X509Certificate[] certificates = request.getAttribute(CERTIFICATES) instanceof X509Certificate[] presented
                ? presented
                : new X509Certificate[0];
        boolean change = request.getMethod().equals("PATCH");
        boolean forLeader = change || request.getRequestURI().endsWith("/explain");
        boolean forwarded = forLeader
                && certificates.length > 0
                && tls.isReplica(certificates[0])
                && !clock.instant().isAfter(certificates[0].getNotAfter().toInstant());
        RequestUser user = forwarded ? LeaderProxy.user(request) : user(request, certificates);
        request.setAttribute(ServerConfiguration.AUTHENTICATED, true);
        request.setAttribute(RequestUser.ATTRIBUTE, user);
        String owner = Watches.owner(user.name());
        if (!threads.take(owner, false)) {
            throw StatusException.tooManyRequests("too many requests; try again");
        }
        try {
            parts.get().stream()
                    .flatMap(part -> part.waitsFor().stream())
                    .findFirst()
                    .ifPresent(what -> {
                        throw StatusException.unavailable(
                                "this replica is not ready, it waits for " + what + "; try again");
                    });
            if (forLeader && cluster.leadership() instanceof NotLeading notLeading) {
                if (change && forwarded) {
                    throw StatusException.unavailable("the leader changes: " + notLeading.why() + "; try again");
                }
                if (!forwarded && answeredByLeader(request, response, user, change)) {
                    return;
                }
            }
            chain.doFilter(request, response);
        } finally {
            threads.giveBack(owner, 1);
        }
    }

    /** Without a leader, a change fails, and this replica explains what it knows. */
    private boolean answeredByLeader(
            HttpServletRequest request, HttpServletResponse response, RequestUser user, boolean change)
            throws IOException {
        try {
            leader.forward(request, response, user);
            return true;
        } catch (StatusException noAnswer) {
            if (change) {
                throw noAnswer;
            }
            return false;
        }
    }

    private RequestUser user(HttpServletRequest request, X509Certificate[] certificates) {
        FrontProxy proxy = proxies.current();
        Optional<String> refusal = proxy.refusal(certificates, clock.instant());
        if (refusal.isPresent()) {
            throw StatusException.unauthorized("only the API server may send requests: " + refusal.get()
                    + "; use kubectl, or send the request to the API server");
        }
        return proxy.user(request)
                .orElseThrow(() -> StatusException.unauthorized("the API server's request names no user"));
    }

    private static void refuse(HttpServletRequest request, HttpServletResponse response, StatusException refusal)
            throws IOException {
        HttpHeaders headers = refusal.getHeaders();
        headers.forEach((name, values) -> values.forEach(value -> response.setHeader(name, value)));
        Problems.write(request, response, refusal.getBody());
    }
}
