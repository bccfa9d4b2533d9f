package io.aliquot.scheduler.extensionapi.identity;

import io.aliquot.scheduler.extensionapi.machinery.Patch;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.server.ports.TlsCertificate;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.Objects;
import javax.net.ssl.SSLHandshakeException;
import org.springframework.http.HttpHeaders;
import org.springframework.stereotype.Component;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.json.JsonMapper;

/**
 * Forwards to the leader what it alone can do: write allocations, and explain with what kube-scheduler excluded. Both replicas recognize each other by the
 * certificate that all of them serve. The API server has authorized the request already; it goes on with the user's
 * identity. Thread-safe.
 */
@Component
public final class LeaderProxy {
    /** The user of a forwarded request: JSON in base64, since header values are not Unicode. */
    private static final String USER = "Aliquot-Forwarded-User";

    private static final Duration CONNECT = Duration.ofSeconds(2);
    private static final Duration ANSWER = Duration.ofSeconds(15);
    /** Headers of a request or an answer that the other side needs. */
    private static final List<String> KEPT =
            List.of(HttpHeaders.CONTENT_TYPE, HttpHeaders.ACCEPT, HttpHeaders.RETRY_AFTER);

    private final ControlPlane controlPlane;
    private final HttpClient client;

    LeaderProxy(ControlPlane controlPlane, TlsCertificate tls) {
        this.controlPlane = controlPlane;
        this.client = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .sslContext(tls.clientOfReplicas())
                .connectTimeout(CONNECT)
                .build();
    }

    /**
     * The user of a request that another replica forwarded.
     *
     * @throws StatusException with code 401 if the request names none
     */
    static RequestUser user(HttpServletRequest request) {
        String header = request.getHeader(USER);
        try {
            byte[] json = Base64.getDecoder().decode(header == null ? "" : header);
            RequestUser user = JsonMapper.shared().readValue(json, RequestUser.class);
            if (user != null && !user.name().isEmpty()) {
                return user;
            }
        } catch (IllegalArgumentException | NullPointerException | JacksonException e) {
            // as without a user
        }
        throw StatusException.unauthorized("the forwarded request names no user");
    }

    /**
     * Sends the request to the leader and the leader's answer to the client.
     *
     * @throws StatusException with code 503 if the request did not reach the leader, or 504 if its answer is not known
     */
    void forward(HttpServletRequest request, HttpServletResponse response, RequestUser user) throws IOException {
        byte[] body = Patch.read(request);
        InetSocketAddress leader = controlPlane
                .leader()
                .orElseThrow(
                        () -> StatusException.unavailable("no scheduler leads now; nothing was changed, try again"));
        HttpResponse<byte[]> answer = send(to(leader, request, user, body));
        response.setStatus(answer.statusCode());
        KEPT.forEach(name -> answer.headers().firstValue(name).ifPresent(value -> response.setHeader(name, value)));
        response.getOutputStream().write(answer.body());
    }

    private static HttpRequest to(InetSocketAddress leader, HttpServletRequest request, RequestUser user, byte[] body) {
        String host = leader.getHostString();
        String query = request.getQueryString();
        var copy = HttpRequest.newBuilder(URI.create("https://" + (host.contains(":") ? "[" + host + "]" : host) + ":"
                        + leader.getPort() + request.getRequestURI() + (query == null ? "" : "?" + query)))
                .timeout(ANSWER)
                .method(request.getMethod(), BodyPublishers.ofByteArray(body))
                .header(
                        USER,
                        Base64.getEncoder().encodeToString(JsonMapper.shared().writeValueAsBytes(user)));
        for (String name : KEPT) {
            String value = request.getHeader(name);
            if (value != null) {
                copy.header(name, value);
            }
        }
        return copy.build();
    }

    private HttpResponse<byte[]> send(HttpRequest request) {
        try {
            return client.send(request, BodyHandlers.ofByteArray());
        } catch (ConnectException | HttpConnectTimeoutException | SSLHandshakeException e) {
            throw StatusException.unavailable(
                    "the scheduler that leads is not reachable; nothing was changed, try again: "
                            + Objects.requireNonNullElse(e.getMessage(), "no connection"));
        } catch (IOException e) {
            throw unknown();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw unknown();
        }
    }

    private static StatusException unknown() {
        return new StatusException(
                504,
                "the scheduler that leads ended before it answered; read the object again: the change may have been made");
    }
}
