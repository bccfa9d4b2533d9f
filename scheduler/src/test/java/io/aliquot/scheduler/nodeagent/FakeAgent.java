package io.aliquot.scheduler.nodeagent;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsParameters;
import com.sun.net.httpserver.HttpsServer;
import io.aliquot.api.nodes.CertificateDigest;
import io.aliquot.scheduler.server.ports.KeyStores;
import io.aliquot.testing.Tls;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;

/** A server on all addresses that speaks as a node agent does: over mutual TLS. */
final class FakeAgent implements AutoCloseable {
    static final KeyStore AGENTS = keys("aliquot-node-agent");
    static final KeyStore SCHEDULERS = keys("aliquot-webhook");

    final AtomicInteger requests = new AtomicInteger();
    private final HttpsServer server;
    private final ExecutorService threads = Executors.newCachedThreadPool();

    /** What an agent does with a request. */
    interface Answer {
        void to(HttpExchange exchange) throws IOException;
    }

    /** Serves {@code own} and accepts clients with the certificate of {@code client}. */
    FakeAgent(KeyStore own, KeyStore client, int port, Answer answer) {
        try {
            server = HttpsServer.create(new InetSocketAddress(port), 0);
            SSLContext context = Tls.trusting(List.of(certificate(client)), key(own), certificate(own));
            server.setHttpsConfigurator(new HttpsConfigurator(context) {
                @Override
                public void configure(HttpsParameters parameters) {
                    SSLParameters ours = context.getDefaultSSLParameters();
                    ours.setNeedClientAuth(true);
                    parameters.setSSLParameters(ours);
                }
            });
        } catch (Exception e) {
            throw new AssertionError(e);
        }
        server.setExecutor(threads);
        server.createContext("/", exchange -> {
            requests.incrementAndGet();
            answer.to(exchange);
        });
        server.start();
    }

    FakeAgent(Answer answer) {
        this(AGENTS, SCHEDULERS, 0, answer);
    }

    int port() {
        return server.getAddress().getPort();
    }

    static Answer text(int status, String body) {
        return exchange -> {
            byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(status, bytes.length);
            try (var out = exchange.getResponseBody()) {
                out.write(bytes);
            }
        };
    }

    /** Sends {@code part} of an answer and then nothing until {@code end}. */
    static Answer stalledAfter(String part, CountDownLatch end) {
        return exchange -> {
            exchange.sendResponseHeaders(200, 1000);
            exchange.getResponseBody().write(part.getBytes(StandardCharsets.UTF_8));
            exchange.getResponseBody().flush();
            await(end);
        };
    }

    static void await(CountDownLatch end) {
        try {
            end.await();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    static AgentTls presenting(KeyStore client) {
        var tls = new AgentTls();
        tls.use(key(client), certificate(client));
        return tls;
    }

    /** By which a node names the certificate. */
    static String digest(KeyStore store) {
        return CertificateDigest.of(certificate(store));
    }

    static PrivateKey key(KeyStore store) {
        try {
            return (PrivateKey) store.getKey(KeyStores.ALIAS, KeyStores.PASSWORD.toCharArray());
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    static X509Certificate certificate(KeyStore store) {
        try {
            return (X509Certificate) store.getCertificate(KeyStores.ALIAS);
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    static KeyStore keys(String name) {
        try {
            return KeyStores.selfSigned(name);
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    @Override
    public void close() {
        server.stop(0);
        threads.shutdownNow();
    }
}
