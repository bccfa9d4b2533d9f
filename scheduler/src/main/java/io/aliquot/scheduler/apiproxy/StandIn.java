package io.aliquot.scheduler.apiproxy;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import io.aliquot.api.tls.TlsContext;
import io.aliquot.scheduler.extensionapi.endpoints.Documents;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.JsonResponse;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.cert.Certificate;
import java.util.Arrays;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Executors;
import javax.net.ssl.SSLContext;
import org.springframework.boot.ssl.pem.PemContent;

/**
 * Answers in place of the scheduler: discovery and OpenAPI as the scheduler does, and 503 to every other request. It
 * listens on 127.0.0.1 and closes each connection after one answer, so that the next request may reach a scheduler.
 */
final class StandIn implements AutoCloseable {
    private static final int RETRY_AFTER_SECONDS = 2;

    private static final Map<String, byte[]> DOCUMENTS = Documents.byPath();

    private static final byte[] AWAY = JsonResponse.json(Map.of(
            "kind",
            "Status",
            "apiVersion",
            "v1",
            "metadata",
            Map.of(),
            "status",
            "Failure",
            "message",
            "no replica of aliquot-scheduler is ready; nothing was changed, try again",
            "reason",
            "ServiceUnavailable",
            "details",
            Map.of("retryAfterSeconds", RETRY_AFTER_SECONDS),
            "code",
            503));

    private final Path folder;
    private volatile HttpsServer server;
    private byte[] served;

    /** Reads the certificate and its key. */
    StandIn(Path folder) throws IOException {
        this.folder = folder;
        this.served = pem();
        this.server = start(served);
    }

    Socket connect() throws IOException {
        return new Socket(InetAddress.getLoopbackAddress(), server.getAddress().getPort());
    }

    /** Serves a new certificate if the files have changed; to be called now and then, by one thread. */
    void reload() {
        try {
            byte[] found = pem();
            if (!Arrays.equals(found, served)) {
                HttpsServer former = server;
                server = start(found);
                served = found;
                former.stop(1);
            }
        } catch (IOException e) {
            // The kubelet is replacing the files: the former certificate counts until the next call.
        }
    }

    @Override
    public void close() {
        server.stop(0);
    }

    private byte[] pem() throws IOException {
        return (Files.readString(folder.resolve("tls.crt")) + Files.readString(folder.resolve("tls.key")))
                .getBytes(StandardCharsets.US_ASCII);
    }

    private static HttpsServer start(byte[] pem) throws IOException {
        HttpsServer server = HttpsServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setHttpsConfigurator(new HttpsConfigurator(context(new String(pem, StandardCharsets.US_ASCII))));
        server.setExecutor(Executors.newVirtualThreadPerTaskExecutor());
        server.createContext("/", StandIn::answer);
        server.start();
        return server;
    }

    private static void answer(HttpExchange exchange) throws IOException {
        try (exchange) {
            String path = exchange.getRequestURI().getRawPath();
            byte[] document = exchange.getRequestMethod().equals("GET") ? DOCUMENTS.get(path) : null;
            var headers = exchange.getResponseHeaders();
            headers.set("Connection", "close");
            headers.set("Content-Type", "application/json");
            byte[] body = AWAY;
            int code = 503;
            if (document != null) {
                body = document;
                code = 200;
            } else if (!path.startsWith(Discovery.VERSION_PATH + "/")) {
                code = 404;
            } else {
                headers.set("Retry-After", Integer.toString(RETRY_AFTER_SECONDS));
            }
            exchange.sendResponseHeaders(code, code == 404 ? -1 : body.length);
            if (code != 404) {
                exchange.getResponseBody().write(body);
            }
        }
    }

    private static SSLContext context(String pem) throws IOException {
        try {
            PemContent content = PemContent.of(pem);
            var chain = content.getCertificates().toArray(Certificate[]::new);
            return TlsContext.of(TlsContext.presenting(Objects.requireNonNull(content.getPrivateKey()), chain));
        } catch (GeneralSecurityException | RuntimeException e) { // PemContent throws several
            throw new IOException("expected a certificate in tls.crt and its key in tls.key", e);
        }
    }
}
