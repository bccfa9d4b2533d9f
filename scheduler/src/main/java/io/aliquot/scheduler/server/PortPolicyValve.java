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
import org.springframework.http.ProblemDetail;

/**
 * Turns away, before anything else sees it, a request for another port's path or with too large a body. Tells ports
 * apart by their connector, which no header can forge.
 */
final class PortPolicyValve extends ValveBase {
    private final Map<Connector, PortPolicy> doors = new ConcurrentHashMap<>();
    private volatile boolean closing;

    PortPolicyValve() {
        super(true);
    }

    void put(Connector connector, PortPolicy door) {
        doors.put(connector, door);
    }

    /** From now on each answer is the last one over its connection. */
    void closeAfterAnswer() {
        closing = true;
    }

    /** How many connections this door's clients keep. */
    long connections(PortPolicy door) {
        return doors.entrySet().stream()
                .filter(entry -> entry.getValue().equals(door))
                .mapToLong(entry -> ((AbstractProtocol<?>) entry.getKey().getProtocolHandler()).getConnectionCount())
                .sum();
    }

    @Override
    public void invoke(Request request, Response response) throws IOException, ServletException {
        if (closing) {
            response.setHeader("Connection", "close");
        }
        PortPolicy door = doors.getOrDefault(request.getConnector(), PortPolicy.NONE);
        Optional<ProblemDetail> refusal = door.refuses(request.getRequestURI(), length(request));
        if (refusal.isPresent()) {
            Problems.write(request.getRequest(), response.getResponse(), refusal.get());
            return;
        }
        getNext().invoke(request, response);
    }

    private static long length(Request request) {
        long told = request.getContentLengthLong();
        if (told >= 0) {
            return told;
        }
        return request.getHeader("Transfer-Encoding") == null ? 0 : told;
    }
}
