package io.aliquot.scheduler.cluster;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.api.Sha256;
import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.EventBuilder;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.ObjectMeta;
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
 * Warnings and news that {@code kubectl describe} shows. The same one about the same object once in ten minutes,
 * whichever and however many replicas have it to tell: its name says it all, so the second one's is refused as there already. Sent
 * behind the caller's back, and lost where the API server doesn't take them.
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
        LOG.warn("{}: {} {}", LoggedAs.of(object), reason, message);
        tell(object, "Warning", reason, message);
    }

    /** As {@link #warn}, about something that is as it should be. */
    void note(HasMetadata object, String reason, String message) {
        tell(object, "Normal", reason, message);
    }

    private void tell(HasMetadata object, String type, String reason, String message) {
        ObjectMeta metadata = object.getMetadata();
        var about = new About(metadata.getUid(), reason, message);
        if (told.asMap().putIfAbsent(about, true) != null) {
            return;
        }
        String namespace = Optional.ofNullable(metadata.getNamespace()).orElse("default");
        Event event = event(object, namespace, type, about);
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

    private Event event(HasMetadata object, String namespace, String type, About about) {
        Instant now = clock.instant().truncatedTo(ChronoUnit.SECONDS);
        return new EventBuilder()
                .withNewMetadata()
                .withNamespace(namespace)
                .withName(name(about, now))
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

    /** The same for every replica that tells the same in the same ten minutes. */
    private static String name(About about, Instant now) {
        String all = String.join(
                "\n",
                about.uid(),
                about.reason(),
                about.message(),
                Long.toString(now.getEpochSecond() / TOLD_FOR.toSeconds()));
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
            LOG.warn("cannot send an event about {}: {}", LoggedAs.of(object), e.getMessage());
            return false;
        }
    }

    @Override
    public void close() {
        sender.shutdownNow();
    }
}
