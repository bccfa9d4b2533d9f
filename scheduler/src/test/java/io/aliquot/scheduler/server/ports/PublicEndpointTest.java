package io.aliquot.scheduler.server.ports;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.ports.ApiServers;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.catalina.Context;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;
import org.apache.coyote.http11.Http11NioProtocol;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A port with few connections, all of one address. */
class PublicEndpointTest {
    private static final int MOST = 8;
    private static final String ANSWER = "HTTP/1.1 200";

    private final Tomcat tomcat = new Tomcat();
    private final Connector connector;
    private final List<Socket> open = new ArrayList<>();

    /** Takes the request of this path for an API server's. */
    private static final class Program extends HttpServlet {
        private static final long serialVersionUID = 1L;

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) {
            if (request.getRequestURI().equals("/metrics")) {
                request.setAttribute(ServerConfiguration.AUTHENTICATED, true);
            }
        }
    }

    PublicEndpointTest(@TempDir Path folder) {
        var endpoint = new PublicEndpoint(MOST, ApiServers.UNKNOWN, System::nanoTime);
        connector = new Connector(new Http11NioProtocol(endpoint));
        connector.setPort(0);
        var valve = new PortPolicyValve();
        valve.put(connector, PortPolicy.HEALTH, endpoint);
        tomcat.setBaseDir(folder.toString());
        tomcat.setConnector(connector);
        tomcat.getEngine().getPipeline().addValve(valve);
        Context context = tomcat.addContext("", null);
        Tomcat.addServlet(context, "program", new Program());
        context.addServletMappingDecoded("/*", "program");
    }

    @BeforeEach
    void start() throws Exception {
        tomcat.start();
    }

    @AfterEach
    void stop() throws Exception {
        for (Socket socket : open) {
            socket.close();
        }
        tomcat.stop();
        tomcat.destroy();
    }

    @Test
    void aConnectionOverWhichAnApiServersRequestWasAnsweredIsClosedAfterAllOthers() throws IOException {
        Socket apiServer = connect();
        Socket stranger = connect();
        assertThat(status(apiServer, "/metrics")).isEqualTo(ANSWER);
        assertThat(status(stranger, "/livez")).isEqualTo(ANSWER);
        for (int i = 0; i < 2 * MOST; i++) {
            assertThat(status(connect(), "/livez")).isEqualTo(ANSWER);
        }
        assertThat(status(stranger, "/livez")).isEmpty();
        assertThat(status(apiServer, "/livez")).isEqualTo(ANSWER);
    }

    private Socket connect() throws IOException {
        var socket = new Socket(InetAddress.getLoopbackAddress(), connector.getLocalPort());
        socket.setSoTimeout(10_000);
        open.add(socket);
        return socket;
    }

    /** The start of the answer; empty if the connection is closed. */
    private static String status(Socket socket, String path) {
        try {
            socket.getOutputStream()
                    .write(("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n").getBytes(StandardCharsets.US_ASCII));
            var answer = new byte[4096];
            int length = socket.getInputStream().read(answer);
            return new String(answer, 0, Math.max(length, 0), StandardCharsets.US_ASCII).split(" \r\n", 2)[0];
        } catch (IOException e) {
            return "";
        }
    }
}
