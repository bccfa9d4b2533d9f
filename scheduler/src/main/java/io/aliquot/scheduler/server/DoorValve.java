package io.aliquot.scheduler.server;

import jakarta.servlet.ServletException;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.connector.Request;
import org.apache.catalina.connector.Response;
import org.apache.catalina.valves.ValveBase;
import org.apache.coyote.AbstractProtocol;
import org.springframework.http.HttpStatus;
import org.springframework.http.ProblemDetail;

/**
 * Turns away, before anything else sees it, a request for another port's path or with too large a body. Tells ports
 * apart by their connector, which no header can forge.
 */
final class DoorValve extends ValveBase {
    private final Map<Connector, Door> doors = new ConcurrentHashMap<>();
    private volatile boolean leaves;

    DoorValve() {
        super(true);
    }

    void put(Connector connector, Door door) {
        doors.put(connector, door);
    }

    /** From now on every answer is the last one over its connection. */
    void leave() {
        leaves = true;
    }

    /** How many connections this door's clients keep. */
    long connections(Door door) {
        return doors.entrySet().stream()
                .filter(entry -> entry.getValue().equals(door))
                .mapToLong(entry -> ((AbstractProtocol<?>) entry.getKey().getProtocolHandler()).getConnectionCount())
                .sum();
    }

    @Override
    public void invoke(Request request, Response response) throws IOException, ServletException {
        if (leaves) {
            response.setHeader("Connection", "close");
        }
        Door door = doors.get(request.getConnector());
        // Compared as sent: none of our paths needs escapes, so whoever sends them wants to confuse somebody.
        if (door == null || !door.answers(request.getRequestURI())) {
            refuse(request, response, HttpStatus.NOT_FOUND, "nothing here");
            return;
        }
        if (request.getContentLengthLong() > door.largestBody()) {
            refuse(
                    request,
                    response,
                    HttpStatus.CONTENT_TOO_LARGE,
                    "expected a body of at most " + door.largestBody() + " bytes, found "
                            + request.getContentLengthLong());
            return;
        }
        // Go's clients, and so kube-scheduler and the API server, always tell the length of a JSON body.
        if (request.getContentLengthLong() < 0 && request.getHeader("Transfer-Encoding") != null) {
            refuse(request, response, HttpStatus.LENGTH_REQUIRED, "expected a Content-Length");
            return;
        }
        getNext().invoke(request, response);
    }

    private static void refuse(Request request, Response response, HttpStatus status, String why) throws IOException {
        Problems.write(request.getRequest(), response.getResponse(), ProblemDetail.forStatusAndDetail(status, why));
    }
}
