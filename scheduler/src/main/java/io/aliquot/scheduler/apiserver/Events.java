package io.aliquot.scheduler.apiserver;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.api.format.Sha256;
import io.aliquot.scheduler.apiserver.reader.LogReference;
import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.EventBuilder;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.net.HttpURLConnection;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Kubernetes Events about pods and nodes, which {@code kubectl describe} shows. A separate thread sends them; an Event
 * that the API server does not accept is lost.
 *
 * <p>A warning about the same of the same object is sent once in ten minutes by all replicas together: the name of the Event
 * is a hash of what it is about, so that the API server refuses the second one as a duplicate. Each replica logs it once in
 * ten minutes. A warning about an occasion is sent once. A note is sent every time, because a state can return.
 */
final class Events implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Events.class);
    private static final String COMPONENT = "aliquot-scheduler";
    /** The API server refuses a longer one (k8s.io/kubernetes, pkg/apis/core/validation/events.go). */
    private static final int LONGEST = 1024;

    private static final int HASH_DIGITS = 20;
    private static final Duration REPEAT_AFTER = Duration.ofMinutes(10);

    /**
     * What an Event is about.
     *
     * @param what the message, or what does not change in it, or the occasion
     */
    private record About(String uid, String reason, String what) {}

    private final KubernetesClient kubernetes;
    private final String instance;
    private final Clock clock;
    /** Warnings whose event is on its way to the API server or there. */
    private final Cache<About, Boolean> sent;
    /** Warnings, and failures to send one, that the log has. */
    private final Cache<About, Boolean> logged;

    private final ExecutorService sender = new ThreadPoolExecutor(
            0,
            1,
            10,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(100),
            Thread.ofPlatform().name("events").daemon().factory());

    Events(KubernetesClient kubernetes, String instance, Clock clock, LongSupplier nanoTime) {
        this.kubernetes = kubernetes;
        this.instance = instance;
        this.clock = clock;
        this.sent = recent(nanoTime);
        this.logged = recent(nanoTime);
    }

    private static Cache<About, Boolean> recent(LongSupplier nanoTime) {
        return Caffeine.newBuilder()
                .maximumSize(10_000)
                .expireAfterWrite(REPEAT_AFTER)
                .ticker(nanoTime::getAsLong)
                .build();
    }

    /** Sends a warning; {@code reason} is one CamelCase word, {@code message} a sentence. */
    void warn(HasMetadata object, String reason, String message) {
        warn(object, reason, message, message);
    }

    /** Sends a warning about {@code what}, of which the message may have figures that change. */
    void warn(HasMetadata object, String reason, String what, String message) {
        long tenMinutes = clock.instant().getEpochSecond() / REPEAT_AFTER.toSeconds();
        var about = new About(object.getMetadata().getUid(), reason, what);
        warn(object, about, message, Long.toString(tenMinutes));
    }

    /** Sends a warning once for each {@code occasion}; after ten minutes the API server refuses it as a duplicate. */
    void warnOnce(HasMetadata object, String reason, String occasion, String message) {
        warn(object, new About(object.getMetadata().getUid(), reason, occasion), message, "");
    }

    private void warn(HasMetadata object, About about, String message, String time) {
        if (isNew(logged, about)) {
            LOG.warn("{}: {} {}", LogReference.of(object), about.reason(), message);
        }
        if (isNew(sent, about)) {
            enqueue(object, "Warning", about, message, time);
        }
    }

    private static boolean isNew(Cache<About, Boolean> seen, About about) {
        return seen.asMap().putIfAbsent(about, true) == null;
    }

    /** Sends an Event of type Normal. One replica calls this, once for each occurrence. */
    void note(HasMetadata object, String reason, String message) {
        var about = new About(object.getMetadata().getUid(), reason, message);
        enqueue(object, "Normal", about, message, clock.instant().toString());
    }

    /** Calls about the same and with the same {@code time} make one Event. */
    private void enqueue(HasMetadata object, String type, About about, String message, String time) {
        String namespace =
                Optional.ofNullable(object.getMetadata().getNamespace()).orElse("default");
        Event event = event(object, namespace, type, about, message, time);
        try {
            sender.execute(() -> {
                if (!send(object, about, event)) {
                    sent.invalidate(about);
                }
            });
        } catch (RejectedExecutionException e) {
            sent.invalidate(about);
        }
    }

    private Event event(HasMetadata object, String namespace, String type, About about, String message, String time) {
        Instant now = clock.instant().truncatedTo(ChronoUnit.SECONDS);
        return new EventBuilder()
                .withNewMetadata()
                .withNamespace(namespace)
                .withName(name(about, time))
                .endMetadata()
                .withNewInvolvedObject()
                .withApiVersion(object.getApiVersion())
                .withKind(object.getKind())
                .withNamespace(object.getMetadata().getNamespace())
                .withName(object.getMetadata().getName())
                .withUid(about.uid())
                .endInvolvedObject()
                .withType(type)
                .withReason(about.reason())
                .withMessage(message.length() > LONGEST ? message.substring(0, LONGEST) : message)
                .withFirstTimestamp(now.toString())
                .withLastTimestamp(now.toString())
                .withCount(1)
                .withReportingComponent(COMPONENT)
                .withReportingInstance(instance)
                .withNewSource()
                .withComponent(COMPONENT)
                .endSource()
                .build();
    }

    private static String name(About about, String time) {
        String all = String.join("\n", about.uid(), about.reason(), about.what(), time);
        return COMPONENT + "-" + Sha256.hex(all).substring(0, HASH_DIGITS);
    }

    private boolean send(HasMetadata object, About about, Event event) {
        try {
            kubernetes.resource(event).create();
            return true;
        } catch (KubernetesClientException e) {
            if (e.getCode() == HttpURLConnection.HTTP_CONFLICT) {
                return true;
            }
            if (isNew(logged, new About(about.uid(), "NotSent", String.valueOf(e.getMessage())))) {
                LOG.warn("cannot send an event about {}: {}", LogReference.of(object), e.getMessage());
            }
            return false;
        }
    }

    @Override
    public void close() {
        sender.shutdownNow();
    }
}
