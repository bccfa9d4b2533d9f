package io.aliquot.scheduler.server.ports;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import org.springframework.context.SmartLifecycle;
import org.springframework.stereotype.Component;

/**
 * Sends a request to the webhooks' port as the API server does, over a new connection, again and again, so that readiness
 * says whether that port answers, and not only the one of the probes.
 */
@Component
public final class WebhookPortCheck implements SmartLifecycle {
    /** In which each step has to succeed; a review of the API server waits for some of them at most. */
    private static final Duration LONGEST_STEP = Duration.ofSeconds(1);

    private static final Duration PERIOD = Duration.ofSeconds(2);
    /** Until it answers, so that a starting replica is ready soon. */
    private static final Duration SHORT_PERIOD = Duration.ofMillis(100);

    /** Any answer will do; this one, 405, comes from a handler and not from Tomcat. */
    private static final byte[] REQUEST = "GET /admission/gpu HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            .getBytes(StandardCharsets.US_ASCII);

    private final PortPolicyValve valve;
    private final SSLContext tls;
    private final Thread thread =
            Thread.ofPlatform().daemon().name("webhook-port-check").unstarted(this::run);
    private volatile Optional<String> failure = Optional.of("no answer yet");

    WebhookPortCheck(PortPolicyValve valve, TlsCertificate certificate) {
        this.valve = valve;
        this.tls = certificate.clientOfReplicas();
    }

    /** Why the port does not answer; empty if it does. */
    public Optional<String> failure() {
        return failure;
    }

    private void run() {
        try {
            while (true) {
                failure = check();
                TimeUnit.NANOSECONDS.sleep((failure.isPresent() ? SHORT_PERIOD : PERIOD).toNanos());
            }
        } catch (InterruptedException e) {
            // The process ends.
        }
    }

    private Optional<String> check() {
        int millis = (int) LONGEST_STEP.toMillis();
        try (var socket = (SSLSocket) tls.getSocketFactory().createSocket()) {
            socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), valve.webhooksPort()), millis);
            socket.setSoTimeout(millis);
            socket.getOutputStream().write(REQUEST);
            return socket.getInputStream().read() < 0 ? Optional.of("it closed a connection") : Optional.empty();
        } catch (IOException e) {
            return Optional.of(String.valueOf(e.getMessage()));
        }
    }

    @Override
    public void start() {
        thread.start();
    }

    @Override
    public void stop() {
        thread.interrupt();
    }

    @Override
    public boolean isRunning() {
        return thread.isAlive();
    }
}
