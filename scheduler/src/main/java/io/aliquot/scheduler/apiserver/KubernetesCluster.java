package io.aliquot.scheduler.apiserver;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.aliquot.scheduler.apiserver.client.ApiServerClient.Answer;
import io.aliquot.scheduler.apiserver.client.ListWatchClient;
import io.aliquot.scheduler.apiserver.client.ResourceType;
import io.aliquot.scheduler.apiserver.client.Writer;
import io.aliquot.scheduler.apiserver.leadership.Leadership;
import io.aliquot.scheduler.apiserver.reader.PodReader;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.NodeId;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.server.health.Latency;
import io.aliquot.scheduler.server.health.Readiness;
import io.fabric8.kubernetes.api.model.DeleteOptions;
import io.fabric8.kubernetes.api.model.DeleteOptionsBuilder;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.policy.v1.EvictionBuilder;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.Meter.MeterProvider;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Timer;
import java.io.IOException;
import java.time.Clock;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What the extender reads from and writes to the API server. */
final class KubernetesCluster implements Cluster {
    private static final Logger LOG = LoggerFactory.getLogger(KubernetesCluster.class);
    /** Two tries to bind and the reads after them must end before kube-scheduler's request timeout, 10 s. */
    private static final Duration WRITE_TIMEOUT = Duration.ofSeconds(3);

    private static final Duration READ_TIMEOUT = Duration.ofMillis(1200);

    /** For requests on which no request of kube-scheduler waits. */
    private static final Duration BACKGROUND_TIMEOUT = Duration.ofSeconds(4);

    /** Of every Binding. */
    private static final Map<String, String> FENCED_LABEL = Map.of(Labels.FENCED, Labels.FENCED_TRUE);

    private static final String JSON = "application/json";
    private static final String MERGE_PATCH = "application/merge-patch+json";
    private static final int NOT_FOUND = 404;
    private static final int CONFLICT = 409;
    private static final int TOO_MANY = 429;

    private final ApiServerClient client;
    private final KubernetesSerialization json;
    private final Leadership leadership;
    private final UnboundPodVersions unbound;
    private final Readiness ready;
    private final Events events;
    private final MeterProvider<Timer> bindingWrites;

    private final Clock clock;
    private final LongSupplier nanoTime;
    private final Writer writer;
    private final Writer quickWriter;

    /** {@code ready} must be ready before any pod is placed. */
    KubernetesCluster(
            ApiServerClient client,
            KubernetesSerialization json,
            Leadership leadership,
            UnboundPodVersions unbound,
            Readiness ready,
            Events events,
            MeterRegistry metrics,
            Clock clock,
            LongSupplier nanoTime) {
        this.client = client;
        this.json = json;
        this.writer = new Writer(client, json, WRITE_TIMEOUT, nanoTime);
        this.quickWriter = new Writer(client, json, READ_TIMEOUT, nanoTime);
        this.leadership = leadership;
        this.unbound = unbound;
        this.ready = ready;
        this.events = events;
        this.bindingWrites = Latency.timer(
                        "aliquot.binding.write", "Time from sending a Binding to the API server until its answer")
                .withRegistry(metrics);
        Gauge.builder(
                        "aliquot.leader",
                        this,
                        cluster -> cluster.leadership() instanceof Cluster.LeaderStatus.Leads ? 1 : 0)
                .description("1 while this replica places pods, 0 while it does not lead or takes over")
                .register(metrics);
        this.clock = clock;
        this.nanoTime = nanoTime;
    }

    @Override
    public Cluster.LeaderStatus leadership() {
        Optional<String> waitsFor = ready.waitsFor();
        return waitsFor.isPresent()
                ? new Cluster.LeaderStatus.NotLeading("the ledger is not complete: waits for " + waitsFor.get())
                : leadership.status();
    }

    @Override
    public OptionalLong version(PodId pod) {
        return unbound.version(pod.uid());
    }

    /** Of core/v1. fabric8's class has many more fields, which serialization visits although they are empty. */
    private record Binding(String apiVersion, String kind, Preconditions metadata, Target target) {}

    /** {@code uid} and {@code resourceVersion} are preconditions (k8s.io/kubernetes, pkg/registry/core/pod/storage). */
    private record Preconditions(
            String namespace,
            String name,
            String uid,
            String resourceVersion,
            Map<String, String> labels,
            Map<String, String> annotations) {}

    private record Target(String apiVersion, String kind, String name) {}

    @Override
    public WriteOutcome bind(PodId pod, long version, String node, Map<String, String> annotations) {
        var binding = new Binding(
                "v1",
                "Binding",
                new Preconditions(
                        pod.namespace(), pod.name(), pod.uid(), Long.toString(version), FENCED_LABEL, annotations),
                new Target("v1", "Node", node));
        long start = nanoTime.getAsLong();
        WriteOutcome outcome = writer.write("POST", JSON, path(pod) + "/binding", binding);
        bindingWrites
                .withTag("outcome", outcome.getClass().getSimpleName().toLowerCase(Locale.ROOT))
                .record(nanoTime.getAsLong() - start, TimeUnit.NANOSECONDS);
        return outcome;
    }

    @Override
    public WriteOutcome resize(PodId pod, long version, Map<String, String> annotations) {
        Pod patch = patch(pod, version, annotations);
        patch.getMetadata().setLabels(Map.of(Labels.RESIZED, Labels.RESIZED_TRUE));
        return writer.write("PATCH", MERGE_PATCH, path(pod), patch);
    }

    @Override
    public WriteOutcome annotate(String node, long version, Map<String, Optional<String>> annotations) {
        Map<String, @Nullable String> values = new LinkedHashMap<>();
        annotations.forEach((key, value) -> values.put(key, value.orElse(null))); // a null removes (RFC 7386)
        return patchNode(node, Map.of("resourceVersion", Long.toString(version), "annotations", values));
    }

    private WriteOutcome patchNode(String node, Map<String, ?> metadata) {
        return writer.write("PATCH", MERGE_PATCH, "/api/v1/nodes/" + node, Map.of("metadata", metadata));
    }

    @Override
    public PodState bumpVersion(PodId pod, long version) {
        var bump = Map.of(Annotations.BUMPED_VERSION, Long.toString(version));
        WriteOutcome outcome = quickWriter.write("PATCH", MERGE_PATCH, path(pod), patch(pod, version, bump));
        return switch (outcome) {
            case WriteOutcome.Refused refused -> new PodState.Unreadable(refused.why());
            case WriteOutcome.Unheard unheard -> new PodState.Unreadable(unheard.why());
            default -> read(pod);
        };
    }

    /**
     * The API server refuses it if the uid or the version differs (Kubernetes API conventions, concurrency control).
     */
    private static Pod patch(PodId pod, long version, Map<String, String> annotations) {
        return new PodBuilder()
                .withNewMetadata()
                .withUid(pod.uid())
                .withResourceVersion(Long.toString(version))
                .withAnnotations(annotations)
                .endMetadata()
                .build();
    }

    private static String path(PodId pod) {
        return "/api/v1/namespaces/" + pod.namespace() + "/pods/" + pod.name();
    }

    @Override
    public PodState read(PodId id) {
        try {
            // Without a resource version the API server reads from etcd (Kubernetes API concepts, resource versions).
            Answer answer = client.get(path(id), JSON, READ_TIMEOUT);
            if (answer.code() == NOT_FOUND) {
                return new PodState.Gone();
            }
            if (!answer.isSuccessful()) {
                return new PodState.Unreadable(quickWriter.message(answer));
            }
            Pod pod = json.unmarshal(answer.text(), Pod.class);
            if (!pod.getMetadata().getUid().equals(id.uid()) || PodReader.ended(pod)) {
                return new PodState.Gone();
            }
            return PodReader.node(pod).isEmpty()
                    ? unbound(pod)
                    : new PodState.Bound(PodReader.bound(pod).pod());
        } catch (IOException | RuntimeException e) { // also an answer that is not a pod
            return new PodState.Unreadable(e.toString());
        }
    }

    private static PodState unbound(Pod pod) {
        try {
            return new PodState.Unbound(PodReader.version(pod), PodReader.gpuRequest(pod));
        } catch (FormatException e) {
            return new PodState.Malformed(PodReader.version(pod), String.valueOf(e.getMessage()));
        }
    }

    @Override
    public boolean wake(String node) {
        var wake = Map.of(Annotations.WAKE, clock.instant().toString());
        WriteOutcome outcome = patchNode(node, Map.of("annotations", wake));
        if (!(outcome instanceof WriteOutcome.Done)) {
            LOG.warn("cannot wake pending pods node={} reason=\"{}\"", node, outcome);
        }
        return outcome instanceof WriteOutcome.Done;
    }

    @Override
    public EvictOutcome evict(PodId pod, boolean dryRun) {
        return evict(pod, new DeleteOptionsBuilder().withDryRun(dryRun ? List.of("All") : List.of()));
    }

    @Override
    public EvictOutcome evict(PodId pod, Duration grace) {
        return evict(pod, gracePeriod(grace));
    }

    /**
     * An eviction, so that controllers see what they know; a deletion where the eviction does not succeed, because a budget
     * refuses it, the pod has two budgets, or its author changes it all the time, so that each try of the server conflicts
     * (pkg/registry/core/pod/storage/eviction.go).
     */
    @Override
    public EvictOutcome end(PodId pod, Duration grace) {
        EvictOutcome outcome = evict(pod, grace);
        return outcome instanceof EvictOutcome.Done
                ? outcome
                : write("DELETE", path(pod), withUid(pod, gracePeriod(grace)));
    }

    private static DeleteOptionsBuilder gracePeriod(Duration grace) {
        return new DeleteOptionsBuilder().withGracePeriodSeconds(grace.toSeconds());
    }

    private static DeleteOptions withUid(PodId pod, DeleteOptionsBuilder options) {
        return options.withNewPreconditions()
                .withUid(pod.uid())
                .endPreconditions()
                .build();
    }

    private EvictOutcome evict(PodId pod, DeleteOptionsBuilder options) {
        var eviction = new EvictionBuilder()
                .withNewMetadata()
                .withNamespace(pod.namespace())
                .withName(pod.name())
                .endMetadata()
                .withDeleteOptions(withUid(pod, options))
                .build();
        return write("POST", path(pod) + "/eviction", eviction);
    }

    private EvictOutcome write(String method, String path, Object body) {
        try {
            Answer answer = client.send(method, path, JSON, json.asJson(body), BACKGROUND_TIMEOUT);
            if (answer.isSuccessful()) {
                return new EvictOutcome.Done();
            }
            return switch (answer.code()) {
                case NOT_FOUND, CONFLICT -> new EvictOutcome.Gone(); // conflict: the name belongs to another pod now
                case TOO_MANY -> new EvictOutcome.Protected(writer.message(answer));
                default -> new EvictOutcome.Failed(writer.message(answer));
            };
        } catch (IOException e) {
            return new EvictOutcome.Failed(e.toString());
        }
    }

    @Override
    public void note(PodId id, String reason, String message) {
        events.note(pod(id), reason, message);
    }

    @Override
    public void warn(PodId id, String reason, String what, String message) {
        events.warn(pod(id), reason, what, message);
    }

    @Override
    public void note(NodeId id, String reason, String message) {
        events.note(node(id), reason, message);
    }

    @Override
    public void warn(NodeId id, String reason, String message) {
        events.warn(node(id), reason, message);
    }

    @Override
    public void warnOnce(NodeId id, String reason, String occasion, String message) {
        events.warnOnce(node(id), reason, occasion, message);
    }

    private static Node node(NodeId id) {
        return new NodeBuilder()
                .withNewMetadata()
                .withName(id.name())
                .withUid(id.uid())
                .endMetadata()
                .build();
    }

    private static Pod pod(PodId id) {
        return new PodBuilder()
                .withNewMetadata()
                .withNamespace(id.namespace())
                .withName(id.name())
                .withUid(id.uid())
                .endMetadata()
                .build();
    }

    /** Reads all bound pods from etcd into the ledger. */
    static void listBoundPods(ListWatchClient client, Ledger ledger) throws IOException {
        client.list(ResourceType.PODS, pod -> {
            if (!PodReader.node(pod).isEmpty() && !PodReader.ended(pod)) {
                ledger.assume(PodReader.bound(pod).pod());
            }
        });
    }
}
