package io.aliquot.scheduler.server.health;

import io.aliquot.scheduler.server.ports.WebhookPortCheck;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.http.HttpStatus;
import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Answers the kubelet's probes and Prometheus. */
@RestController
final class HealthController {
    private static final MediaType EXPOSITION = MediaType.parseMediaType("text/plain;version=0.0.4;charset=utf-8");
    private static final Duration SHARED = Duration.ofSeconds(1);

    private final ObjectProvider<Liveness> liveness;
    private final ObjectProvider<Readiness> readiness;
    private final ObjectProvider<WebhookPortCheck> webhooks;
    private final PrometheusMeterRegistry metrics;
    private final LongSupplier nanoTime;
    /** All clients of a second get the same one, so that those that read slowly do not each hold one in memory. */
    private byte[] scrape = {};

    private long scrapedAt;

    HealthController(
            ObjectProvider<Liveness> liveness,
            ObjectProvider<Readiness> readiness,
            ObjectProvider<WebhookPortCheck> webhooks,
            PrometheusMeterRegistry metrics,
            LongSupplier nanoTime) {
        this.liveness = liveness;
        this.readiness = readiness;
        this.webhooks = webhooks;
        this.metrics = metrics;
        this.nanoTime = nanoTime;
    }

    @GetMapping("/livez")
    ResponseEntity<String> alive() {
        return answer(liveness.stream().flatMap(part -> part.broken().stream()));
    }

    @GetMapping("/readyz")
    ResponseEntity<String> ready() {
        ResponseEntity<String> answer = answer(Stream.concat(
                        readiness.stream().flatMap(part -> part.waitsFor().stream()),
                        webhooks.stream()
                                .flatMap(port -> port.failure().stream())
                                .map(why -> "an answer of the webhooks' port: " + why))
                .map(what -> "waits for " + what));
        String remarks = readiness.stream()
                .flatMap(part -> part.remark().stream())
                .map(remark -> remark + "\n")
                .collect(Collectors.joining());
        return ResponseEntity.status(answer.getStatusCode())
                .contentType(MediaType.TEXT_PLAIN)
                .body(answer.getBody() + remarks);
    }

    @GetMapping("/metrics")
    ResponseEntity<byte[]> metrics() {
        return ResponseEntity.ok().contentType(EXPOSITION).body(scrape());
    }

    private synchronized byte[] scrape() {
        long now = nanoTime.getAsLong();
        if (scrape.length == 0 || now - scrapedAt >= SHARED.toNanos()) {
            scrape = metrics.scrape().getBytes(StandardCharsets.UTF_8);
            scrapedAt = now;
        }
        return scrape;
    }

    private static ResponseEntity<String> answer(Stream<String> failures) {
        List<String> all = failures.toList();
        return all.isEmpty()
                ? text(HttpStatus.OK, "ok\n")
                : text(HttpStatus.SERVICE_UNAVAILABLE, String.join("\n", all) + "\n");
    }

    private static ResponseEntity<String> text(HttpStatus status, String text) {
        return ResponseEntity.status(status).contentType(MediaType.TEXT_PLAIN).body(text);
    }
}
