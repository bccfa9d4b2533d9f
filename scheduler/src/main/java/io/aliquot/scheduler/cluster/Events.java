package io.aliquot.scheduler.cluster;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.fabric8.kubernetes.api.model.EventBuilder;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Clock;
import java.time.Duration;
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
 * Warnings and news that {@code kubectl describe} shows. The same one about the same object once in ten minutes; sent behind the
 * caller's back, and lost where the API server doesn't take them.
 */
final class Events implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Events.class);
    private static final String COMPONENT = "aliquot-scheduler";
    /** The API server refuses a longer one (k8s.io/kubernetes, pkg/apis/core/validation/events.go). */
    private static final int LONGEST = 1024;

    private record About(String uid, String reason, String message) {}

    private final KubernetesClient kubernetes;
    private final String instance;
    private final Clock clock;
    private final Cache<About, Boolean> told = Caffeine.newBuilder()
            .maximumSize(1000)
            .expireAfterWrite(Duration.ofMinutes(10))
            .build();
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
        LOG.warn("{} {}: {} {}", object.getKind(), object.getMetadata().getName(), reason, message);
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
        String kind = object.getKind();
        String apiVersion = object.getApiVersion();
        String name = metadata.getName();
        String uid = metadata.getUid();
        try {
            sender.execute(() -> send(namespace, apiVersion, kind, name, uid, type, reason, message));
        } catch (RejectedExecutionException e) {
            told.invalidate(about);
        }
    }

    private void send(
            String namespace,
            String apiVersion,
            String kind,
            String name,
            String uid,
            String type,
            String reason,
            String message) {
        String now = clock.instant().truncatedTo(ChronoUnit.SECONDS).toString();
        var event = new EventBuilder()
                .withNewMetadata()
                .withNamespace(namespace)
                .withGenerateName(COMPONENT + "-")
                .endMetadata()
                .withNewInvolvedObject()
                .withApiVersion(apiVersion)
                .withKind(kind)
                .withNamespace(kind.equals("Node") ? null : namespace)
                .withName(name)
                .withUid(uid)
                .endInvolvedObject()
                .withType(type)
                .withReason(reason)
                .withMessage(message.length() > LONGEST ? message.substring(0, LONGEST) : message)
                .withFirstTimestamp(now)
                .withLastTimestamp(now)
                .withCount(1)
                .withReportingComponent(COMPONENT)
                .withReportingInstance(instance)
                .withNewSource()
                .withComponent(COMPONENT)
                .endSource()
                .build();
        try {
            kubernetes.resource(event).create();
        } catch (KubernetesClientException e) {
            LOG.warn("cannot send an event about {} {}: {}", kind, name, e.getMessage());
        }
    }

    @Override
    public void close() {
        sender.shutdownNow();
    }
}
