package io.aliquot.scheduler.server;

import jakarta.servlet.ServletException;
import java.io.IOException;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.connector.Request;
import org.apache.catalina.connector.Response;
import org.apache.catalina.valves.ValveBase;
import org.apache.coyote.AbstractProtocol;
import org.springframework.http.HttpStatus;
import org.springframework.http.ProblemDetail;

/**
 * Refuses a request for a path of another port, or with too large a body, before any handler sees it. Identifies the
 * port by its connector, which no header can forge.
 */
final class PortPolicyValve extends ValveBase {
    private final Map<Connector, PortPolicy> policies = new ConcurrentHashMap<>();
    private volatile boolean closing;

    PortPolicyValve() {
        super(true);
    }

    void put(Connector connector, PortPolicy policy) {
        policies.put(connector, policy);
    }

    /** From now on each answer is the last one over its connection. */
    void closeAfterAnswer() {
        closing = true;
    }

    /** Returns the number of open connections of the ports with this policy. */
    long connections(PortPolicy policy) {
        return policies.entrySet().stream()
                .filter(entry -> entry.getValue().equals(policy))
                .mapToLong(entry -> ((AbstractProtocol<?>) entry.getKey().getProtocolHandler()).getConnectionCount())
                .sum();
    }

    @Override
    public void invoke(Request request, Response response) throws IOException, ServletException {
        if (closing) {
            response.setHeader("Connection", "close");
        }
        if (request.getRequestURI() == null) { // Tomcat could not read the request line, for example for a backslash
            response.setStatus(HttpStatus.BAD_REQUEST.value());
            return;
        }
        PortPolicy policy = policies.getOrDefault(request.getConnector(), PortPolicy.NONE);
        Optional<ProblemDetail> refusal = policy.refusal(request.getRequestURI(), length(request));
        if (refusal.isPresent()) {
            Problems.write(request.getRequest(), response.getResponse(), refusal.get());
            return;
        }
        getNext().invoke(request, response);
    }

    private static long length(Request request) {
        long declared = request.getContentLengthLong();
        if (declared >= 0) {
            return declared;
        }
        return request.getHeader("Transfer-Encoding") == null ? 0 : declared;
    }
}
