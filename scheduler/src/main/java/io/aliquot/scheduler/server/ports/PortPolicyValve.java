package io.aliquot.scheduler.server.ports;

import io.aliquot.scheduler.server.errors.Problems;
import jakarta.servlet.ServletException;
import java.io.IOException;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.connector.Request;
import org.apache.catalina.connector.Response;
import org.apache.catalina.valves.ValveBase;
import org.apache.coyote.ActionCode;
import org.springframework.http.HttpStatus;
import org.springframework.http.ProblemDetail;

/**
 * Refuses a request for a path of another port, or with too large a body, before any handler sees it. Identifies the
 * port by its connector, which no header can forge.
 */
final class PortPolicyValve extends ValveBase {
    private record Port(PortPolicy policy, Optional<PublicEndpoint> publicly) {}

    private static final Set<PortPolicy> WEBHOOKS = Set.of(PortPolicy.WEBHOOKS, PortPolicy.WEBHOOKS_AND_API);

    private final Map<Connector, Port> ports = new ConcurrentHashMap<>();
    private volatile boolean closing;

    PortPolicyValve() {
        super(true);
    }

    /** A port that only processes of the same pod can reach. */
    void put(Connector connector, PortPolicy policy) {
        ports.put(connector, new Port(policy, Optional.empty()));
    }

    /** A port that every pod can reach. */
    void put(Connector connector, PortPolicy policy, PublicEndpoint endpoint) {
        ports.put(connector, new Port(policy, Optional.of(endpoint)));
    }

    /** The webhooks' port on which this process listens. */
    int webhooksPort() {
        return ports.entrySet().stream()
                .filter(port -> WEBHOOKS.contains(port.getValue().policy()))
                .mapToInt(port -> port.getKey().getLocalPort())
                .findFirst()
                .orElseThrow();
    }

    /** From now on each answer is the last one over its connection. */
    void closeAfterAnswer() {
        closing = true;
    }

    /** Returns the number of open connections of the webhooks' port. */
    long webhooksConnections() {
        return ports.values().stream()
                .filter(port -> WEBHOOKS.contains(port.policy()))
                .flatMap(port -> port.publicly().stream())
                .mapToLong(PublicEndpoint::size)
                .sum();
    }

    @Override
    public void backgroundProcess() {
        super.backgroundProcess();
        ports.values().forEach(port -> port.publicly().ifPresent(PublicEndpoint::disconnectLateClients));
    }

    @Override
    public void invoke(Request request, Response response) throws IOException, ServletException {
        Port port = ports.get(request.getConnector());
        if (port == null || port.publicly().isEmpty()) {
            answer(port == null ? PortPolicy.NONE : port.policy(), request, response);
            return;
        }
        PublicEndpoint endpoint = port.publicly().get();
        String client = request.getPeerAddr();
        int clientPort = request.getRemotePort();
        endpoint.requested(client, clientPort);
        try {
            answer(port.policy(), request, response);
        } finally {
            if (!request.isAsync()) {
                leaveBodyUnread(request);
            }
            boolean authenticated = request.getAttribute(ServerConfiguration.AUTHENTICATED) != null;
            endpoint.answered(client, clientPort, request.isAsync(), authenticated);
        }
    }

    private void answer(PortPolicy policy, Request request, Response response) throws IOException, ServletException {
        if (closing) {
            response.setHeader("Connection", "close");
        }
        if (request.getRequestURI() == null) { // Tomcat could not read the request line, for example for a backslash
            response.setStatus(HttpStatus.BAD_REQUEST.value());
            return;
        }
        long length;
        try {
            length = length(request);
        } catch (NumberFormatException e) {
            response.setStatus(HttpStatus.BAD_REQUEST.value());
            return;
        }
        Optional<ProblemDetail> refusal = policy.refusal(request.getRequestURI(), length);
        if (refusal.isPresent()) {
            if (length != 0) { // the body is not read, so the connection ends with the answer
                response.setHeader("Connection", "close");
            }
            Problems.write(request.getRequest(), response.getResponse(), refusal.get());
            return;
        }
        getNext().invoke(request, response);
    }

    /** Tomcat would read the rest of a body to its end, however slowly it comes. Now it closes the connection instead. */
    private static void leaveBodyUnread(Request request) {
        var read = new AtomicBoolean();
        request.getCoyoteRequest().action(ActionCode.REQUEST_BODY_FULLY_READ, read);
        if (!read.get()) {
            request.getCoyoteRequest().action(ActionCode.DISABLE_SWALLOW_INPUT, null);
        }
    }

    private static long length(Request request) {
        long declared = request.getContentLengthLong();
        if (declared >= 0) {
            return declared;
        }
        return request.getHeader("Transfer-Encoding") == null ? 0 : declared;
    }
}
