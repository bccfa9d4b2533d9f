package io.aliquot.scheduler.nodeagent;

import io.aliquot.api.format.JsonFields;
import io.aliquot.api.nodes.CertificateDigest;
import io.aliquot.scheduler.nodeagent.AgentException.Outcome;
import io.aliquot.scheduler.server.ports.PinnedTls;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.ConnectException;
import java.net.HttpURLConnection;
import java.net.NoRouteToHostException;
import java.net.URI;
import java.net.URISyntaxException;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodySubscriber;
import java.net.http.HttpTimeoutException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLSession;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JacksonException;

/**
 * Sends requests to node agents, by TLS with the certificate of {@link AgentTls}. No thread waits for an answer, so any
 * number of agents may be slow. Thread-safe.
 */
final class AgentClient implements AutoCloseable {
    static final int PORT = 9092;
    /** From the request to the last byte of the answer. */
    static final Duration TIMEOUT = Duration.ofSeconds(3);

    static final int LARGEST_ANSWER = 4 << 20;
    /** Of all answers that are under way: 12 MiB with the chart's heap. */
    private static final long MOST_BUFFERED = Runtime.getRuntime().maxMemory() / 8;

    private static final int THREADS = 2;
    private static final int LONGEST_REASON = 300;

    private static final int SESSION_SECONDS = 3600;

    private final AgentTls tls;
    private final int port;
    private final Duration timeout;
    private final AtomicLong buffered = new AtomicLong();
    private final ExecutorService threads = Executors.newFixedThreadPool(
            THREADS, Thread.ofPlatform().name("agent-client-", 0).daemon().factory());
    private @Nullable Session session;

    /** The client for connections with one identity: no connection outlives a change of it. */
    private record Session(PinnedTls.Identity identity, HttpClient http) {}

    /**
     * Connects to nothing yet.
     *
     * @param port of the agents
     * @param timeout for a whole answer
     */
    AgentClient(AgentTls tls, int port, Duration timeout) {
        this.tls = tls;
        this.port = port;
        this.timeout = timeout;
    }

    /**
     * Asks an agent.
     *
     * @param address of its pod
     * @param certificate the {@link CertificateDigest} of the one that it has to present
     * @param body of the request; empty for none
     * @return the text of its answer; fails with an {@link AgentException}, also as the cause of a CompletionException
     */
    CompletableFuture<String> get(String address, String certificate, String path, String query, String body) {
        HttpRequest request;
        HttpClient http;
        try {
            request = HttpRequest.newBuilder(uri(address, path, query))
                    .method("GET", body.isEmpty() ? BodyPublishers.noBody() : BodyPublishers.ofString(body))
                    .build();
            http = http();
        } catch (AgentException e) {
            return CompletableFuture.failedFuture(e);
        }
        var answerBody = new LimitedBody(buffered);
        CompletableFuture<HttpResponse<byte[]>> reply = http.sendAsync(request, response -> answerBody);
        CompletableFuture<String> answer = reply.thenApply(response -> text(response, certificate));
        return answer.orTimeout(timeout.toMillis(), TimeUnit.MILLISECONDS)
                .whenComplete((text, failure) -> {
                    answerBody.release();
                    reply.cancel(true); // ends the exchange after a timeout
                })
                .exceptionallyCompose(failure -> CompletableFuture.failedFuture(explained(failure)));
    }

    @Override
    public synchronized void close() {
        if (session != null) {
            session.http().shutdownNow();
        }
        threads.shutdownNow();
    }

    private synchronized HttpClient http() throws AgentException {
        PinnedTls.Identity identity = tls.identity()
                .orElseThrow(() ->
                        new AgentException(Outcome.NO_AGENT, "the scheduler has no certificate for node agents yet"));
        Session current = session;
        if (current == null || !current.identity().equals(identity)) {
            if (current != null) {
                current.http().shutdown();
            }
            HttpClient http = HttpClient.newBuilder()
                    .version(HttpClient.Version.HTTP_1_1)
                    // Before the timeout for the answer, so that it is known which of the two it was.
                    .connectTimeout(timeout.multipliedBy(2).dividedBy(3))
                    .followRedirects(HttpClient.Redirect.NEVER)
                    .proxy(HttpClient.Builder.NO_PROXY)
                    .sslContext(context(identity))
                    .sslParameters(parameters())
                    .executor(threads)
                    .build();
            current = new Session(identity, http);
            session = current;
        }
        return current.http();
    }

    private SSLContext context(PinnedTls.Identity own) {
        // The handshake proves that the server has the certificate's key. Which certificate it has to be depends on the
        // node, and is checked with each answer, those of kept connections and resumed sessions included.
        SSLContext context = PinnedTls.client(() -> Optional.of(own), certificate -> {});
        // A resumed session saves both signatures of a handshake.
        context.getClientSessionContext().setSessionTimeout(SESSION_SECONDS);
        return context;
    }

    private static SSLParameters parameters() {
        var parameters = new SSLParameters();
        parameters.setProtocols(new String[] {"TLSv1.3", "TLSv1.2"});
        return parameters;
    }

    private URI uri(String address, String path, String query) throws AgentException {
        try {
            String host = address.contains(":") ? "[" + address + "]" : address;
            return new URI("https", null, host, port, path, query.isEmpty() ? null : query, null);
        } catch (URISyntaxException e) {
            throw new AgentException(Outcome.UNREACHABLE, "its address \"" + address + "\" is not one");
        }
    }

    private static String text(HttpResponse<byte[]> response, String certificate) {
        if (!response.sslSession().map(AgentClient::presented).orElse("").equals(certificate)) {
            throw new CompletionException(new AgentException(
                    Outcome.UNTRUSTED, "it presents another certificate than the one that its node's inventory names"));
        }
        String text = new String(response.body(), StandardCharsets.UTF_8);
        if (response.statusCode() != HttpURLConnection.HTTP_OK) {
            throw new CompletionException(new AgentException(
                    Outcome.REFUSED, "it answers with status " + response.statusCode() + reason(text)));
        }
        return text;
    }

    private static String presented(SSLSession session) {
        try {
            return CertificateDigest.of(session.getPeerCertificates()[0]);
        } catch (SSLPeerUnverifiedException e) {
            return "";
        }
    }

    /** The sentence in an answer such as {@code {"error": "unknown GPU"}}. */
    private static String reason(String body) {
        try {
            String error = JsonFields.JSON.readTree(body).path("error").asString("");
            String printable = error.replaceAll("\\p{Cntrl}", " ");
            return printable.isEmpty()
                    ? ""
                    : ": " + printable.substring(0, Math.min(printable.length(), LONGEST_REASON));
        } catch (JacksonException e) {
            return "";
        }
    }

    private AgentException explained(Throwable failure) {
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            switch (cause) {
                case AgentException known -> {
                    return known;
                }
                case TimeoutException timeout -> {
                    return noAnswer();
                }
                case HttpConnectTimeoutException late -> {
                    return new AgentException(Outcome.UNREACHABLE, "it cannot be connected to");
                }
                case HttpTimeoutException timeout -> {
                    return noAnswer();
                }
                case ConnectException refused -> {
                    return new AgentException(Outcome.UNREACHABLE, "it is not reachable: " + refused);
                }
                case NoRouteToHostException refused -> {
                    return new AgentException(Outcome.UNREACHABLE, "it is not reachable: " + refused);
                }
                case SSLException refused -> {
                    return new AgentException(
                            Outcome.UNTRUSTED, "no connection that both sides trust: " + refused.getMessage());
                }
                case TooLongException tooLong -> {
                    return new AgentException(Outcome.INVALID, String.valueOf(tooLong.getMessage()));
                }
                default -> {}
            }
        }
        Throwable cause =
                failure instanceof CompletionException && failure.getCause() != null ? failure.getCause() : failure;
        return new AgentException(Outcome.BROKEN, "the connection to it ended: " + cause);
    }

    private AgentException noAnswer() {
        return new AgentException(Outcome.TIMEOUT, "it did not answer within " + timeout.toSeconds() + " s");
    }

    private static final class TooLongException extends IOException {
        private static final long serialVersionUID = 1;

        TooLongException(String message) {
            super(message);
        }
    }

    /** Collects an answer up to its limit and to that of all answers. */
    private static final class LimitedBody implements BodySubscriber<byte[]> {
        private final AtomicLong buffered;
        private final CompletableFuture<byte[]> body = new CompletableFuture<>();
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        private Flow.@Nullable Subscription subscription;
        private boolean released;

        LimitedBody(AtomicLong buffered) {
            this.buffered = buffered;
        }

        @Override
        public CompletionStage<byte[]> getBody() {
            return body;
        }

        @Override
        public void onSubscribe(Flow.Subscription subscription) {
            this.subscription = subscription;
            subscription.request(Long.MAX_VALUE);
        }

        @Override
        public synchronized void onNext(List<ByteBuffer> buffers) {
            for (ByteBuffer buffer : buffers) {
                int more = buffer.remaining();
                if (released) {
                    return;
                }
                if (bytes.size() + more > LARGEST_ANSWER) {
                    fail("its answer is longer than " + LARGEST_ANSWER + " bytes");
                    return;
                }
                if (buffered.addAndGet(more) > MOST_BUFFERED) {
                    buffered.addAndGet(-more);
                    fail("the answers of all agents together are longer than " + MOST_BUFFERED + " bytes");
                    return;
                }
                byte[] chunk = new byte[more];
                buffer.get(chunk);
                bytes.writeBytes(chunk);
            }
        }

        private void fail(String message) {
            if (subscription != null) {
                subscription.cancel();
            }
            body.completeExceptionally(new TooLongException(message));
        }

        @Override
        public void onError(Throwable failure) {
            body.completeExceptionally(failure);
        }

        @Override
        public synchronized void onComplete() {
            body.complete(bytes.toByteArray());
        }

        /** The answer is complete or given up. */
        synchronized void release() {
            if (!released) {
                released = true;
                buffered.addAndGet(-bytes.size());
            }
        }
    }
}
