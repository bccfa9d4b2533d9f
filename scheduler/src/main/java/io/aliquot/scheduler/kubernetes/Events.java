package io.aliquot.scheduler.kubernetes;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.api.Sha256;
import io.aliquot.scheduler.kubernetes.client.LogReference;
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
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Warnings and news that {@code kubectl describe} shows. The same warning about the same object once in ten minutes,
 * whichever and however many replicas have it to tell: its name says it all, so the second one's is refused as there
 * already. News as often as there are any, since what was so before may be so again. Sent behind the caller's back, and
 * lost where the API server doesn't take them.
 */
final class Events implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Events.class);
    private static final String COMPONENT = "aliquot-scheduler";
    /** The API server refuses a longer one (k8s.io/kubernetes, pkg/apis/core/validation/events.go). */
    private static final int LONGEST = 1024;

    private static final int HASH_DIGITS = 20;
    private static final Duration TOLD_FOR = Duration.ofMinutes(10);

    private record About(String uid, String reason, String message) {}

    private final KubernetesClient kubernetes;
    private final String instance;
    private final Clock clock;
    private final Cache<About, Boolean> told =
            Caffeine.newBuilder().maximumSize(1000).expireAfterWrite(TOLD_FOR).build();
    private final ExecutorService sender =
            new ThreadPoolExecutor(0, 1, 10, TimeUnit.SECONDS, new LinkedBlockingQueue<>(100), task -> {
                var thread = new Thread(task, "events");
                thread.setDaemon(true);
                return thread;
            });

    Events(KubernetesClient kubernetes, String instance, Clock clock) {
        this.kubernetes = kubernetes;
        this.instance = instance;
        this.clock = clock;
    }

    /** {@code reason} is one CamelCase word, {@code message} a sentence. */
    void warn(HasMetadata object, String reason, String message) {
        LOG.warn("{}: {} {}", LogReference.of(object), reason, message);
        var about = new About(object.getMetadata().getUid(), reason, message);
        if (told.asMap().putIfAbsent(about, true) == null) {
            long tenMinutes = clock.instant().getEpochSecond() / TOLD_FOR.toSeconds();
            tell(object, "Warning", about, Long.toString(tenMinutes));
        }
    }

    /** The same about something that is as it should be; for one replica to call, and once for each time that it is so. */
    void note(HasMetadata object, String reason, String message) {
        var about = new About(object.getMetadata().getUid(), reason, message);
        tell(object, "Normal", about, clock.instant().toString());
    }

    /** The same told of an object with the same {@code time} is one event. */
    private void tell(HasMetadata object, String type, About about, String time) {
        String namespace =
                Optional.ofNullable(object.getMetadata().getNamespace()).orElse("default");
        Event event = event(object, namespace, type, about, time);
        try {
            sender.execute(() -> {
                if (!send(object, event)) {
                    told.invalidate(about);
                }
            });
        } catch (RejectedExecutionException e) {
            told.invalidate(about);
        }
    }

    private Event event(HasMetadata object, String namespace, String type, About about, String time) {
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
                .withMessage(
                        about.message().length() > LONGEST ? about.message().substring(0, LONGEST) : about.message())
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
        String all = String.join("\n", about.uid(), about.reason(), about.message(), time);
        return COMPONENT + "-" + Sha256.hex(all).substring(0, HASH_DIGITS);
    }

    private boolean send(HasMetadata object, Event event) {
        try {
            kubernetes.resource(event).create();
            return true;
        } catch (KubernetesClientException e) {
            if (e.getCode() == HttpURLConnection.HTTP_CONFLICT) {
                return true;
            }
            LOG.warn("cannot send an event about {}: {}", LogReference.of(object), e.getMessage());
            return false;
        }
    }

    @Override
    public void close() {
        sender.shutdownNow();
    }
}
