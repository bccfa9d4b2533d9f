package io.aliquot.deviceplugin.http;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.deviceplugin.http.HttpPort.Answer;
import io.aliquot.deviceplugin.http.HttpPort.Request;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Plain HTTP; ReportServerTest has TLS. */
final class HttpPortTest {
    /** Of what must answer within a second on a machine that is not busy with other tests. */
    private static final int PATIENCE_MILLIS = 5_000;

    private static final String GET = "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";

    private final List<Socket> open = new ArrayList<>();
    private final HttpPort port;

    HttpPortTest() throws IOException {
        port = new HttpPort(0, Optional.empty(), HttpPortTest::answer);
    }

    private static Answer answer(Request request) {
        return switch (request.path()) {
            case "/livez" -> new Answer(200, "text/plain", "ok\n");
            case "/long" -> new Answer(200, "text/plain", "x".repeat(4 << 20));
            case "/echo" -> new Answer(200, "text/plain", request.query());
            default -> throw new IllegalStateException("a secret of the inside");
        };
    }

    @AfterEach
    void close() throws IOException {
        for (Socket socket : open) {
            socket.close();
        }
        port.close();
    }

    /** Regression: 4 connections with one byte each made the kubelet restart the agent. */
    @Test
    void requestsAreAnsweredBesideSilentConnections() throws IOException {
        for (int i = 0; i < 200; i++) {
            send(connect(), i % 2 == 0 ? "" : "G");
        }
        for (int i = 0; i < 6; i++) {
            assertThat(said(GET)).startsWith("HTTP/1.1 200").endsWith("\r\n\r\nok\n");
        }
    }

    /** Regression: a new connection closed the oldest one, of whichever address. */
    @Test
    void manyConnectionsOfOneAddressCloseNoneOfAnother() throws IOException {
        Socket slow = connect("127.0.0.3");
        slow.setSoTimeout(PATIENCE_MILLIS);
        send(slow, GET.substring(0, 10));
        for (int i = 0; i < 200; i++) {
            connect("127.0.0.2");
        }
        send(slow, GET.substring(10));
        assertThat(new String(slow.getInputStream().readAllBytes(), StandardCharsets.ISO_8859_1))
                .startsWith("HTTP/1.1 200");
    }

    @Test
    void requestsAreAnsweredBesideClientsThatDoNotRead() throws IOException {
        for (int i = 0; i < 20; i++) {
            var socket = new Socket();
            open.add(socket);
            socket.setReceiveBufferSize(1 << 10);
            socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port.port()));
            send(socket, "GET /long HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100));
        }
        assertThat(said(GET)).startsWith("HTTP/1.1 200");
    }

    @Test
    void aConnectionHasOneAnswerAndADeadline() throws IOException {
        assertThat(said(GET + GET)).containsOnlyOnce("HTTP/1.1");
        try (var hasty = new HttpPort(0, Optional.empty(), HttpPortTest::answer, Duration.ofMillis(300));
                var silent = new Socket(InetAddress.getLoopbackAddress(), hasty.port())) {
            silent.setSoTimeout(PATIENCE_MILLIS);
            assertThat(silent.getInputStream().read()).isEqualTo(-1);
        }
    }

    @Test
    void aBodyIsNotWaitedFor() throws IOException {
        assertThat(said("GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 60000000\r\n\r\n"))
                .startsWith("HTTP/1.1 200");
        assertThat(said("POST /livez HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"))
                .startsWith("HTTP/1.1 405");
    }

    @Test
    void aLengthThatIsNoNumberAndALongHeadAreBadRequests() throws IOException {
        for (String request : List.of(
                "GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: many\r\n\r\n",
                "GET /livez HTTP/1.1\r\nA: " + "a".repeat(20_000),
                "GET /" + "a".repeat(20_000))) {
            assertThat(said(request)).as(request).startsWith("HTTP/1.1 400");
        }
    }

    @Test
    void theQueryIsNotPartOfThePathAndABugIsAnInternalError() throws IOException {
        assertThat(said("GET /echo?gpu=1 HTTP/1.1\r\nHost: a\r\n\r\n")).endsWith("\r\n\r\ngpu=1");
        assertThat(said("GET /bug HTTP/1.1\r\nHost: a\r\n\r\n"))
                .startsWith("HTTP/1.1 500")
                .doesNotContain("secret");
    }

    private String said(String request) throws IOException {
        Socket socket = connect();
        socket.setSoTimeout(PATIENCE_MILLIS);
        var answer = new ByteArrayOutputStream();
        try {
            send(socket, request);
            socket.getInputStream().transferTo(answer);
        } catch (SocketTimeoutException e) {
            throw e;
        } catch (IOException e) { // the server has closed the connection without reading all
        }
        return answer.toString(StandardCharsets.ISO_8859_1);
    }

    private Socket connect() throws IOException {
        return connect("127.0.0.1");
    }

    private Socket connect(String from) throws IOException {
        var socket = new Socket();
        open.add(socket);
        socket.bind(new InetSocketAddress(from, 0));
        socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port.port()));
        return socket;
    }

    private static void send(Socket socket, String text) throws IOException {
        socket.getOutputStream().write(text.getBytes(StandardCharsets.ISO_8859_1));
    }
}
