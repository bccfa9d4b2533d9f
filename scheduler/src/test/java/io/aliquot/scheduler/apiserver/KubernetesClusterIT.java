package io.aliquot.scheduler.apiserver;

import static io.aliquot.testing.Await.await;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.aliquot.scheduler.apiserver.client.ListWatchClient;
import io.aliquot.scheduler.apiserver.leadership.Leadership;
import io.aliquot.scheduler.apiserver.reader.PodReader;
import io.aliquot.scheduler.cluster.AllocationAnnotations;
import io.aliquot.scheduler.cluster.Cluster.PodState;
import io.aliquot.scheduler.cluster.Cluster.WriteOutcome;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerListener;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.testing.ApiServer;
import io.aliquot.testing.FaultyTcpProxy;
import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The requests of {@link KubernetesCluster} against a real API server. */
class KubernetesClusterIT {
    private static final Map<String, String> ALLOCATION = Map.of(
            "aliquot.io/fence",
            "pod-a_1/1",
            "aliquot.io/vgpu.main",
            "GPU-00000000-0000-0000-0000-000000000001 memory=1000Mi cores=0 policy=fixed context=0Mi\n");
    private static final AtomicInteger NAMES = new AtomicInteger();

    private static ApiServer server;
    private static KubernetesClient admin;

    private FaultyTcpProxy proxy;
    private KubernetesClient client;
    private Events events;
    private final SimpleMeterRegistry metrics = new SimpleMeterRegistry();
    private KubernetesCluster cluster;

    @BeforeAll
    static void start(@TempDir Path folder) throws Exception {
        server = new ApiServer(folder);
        admin = new KubernetesClientBuilder()
                .withConfig(server.client().build())
                .build();
        await(
                "the namespace default",
                () -> admin.namespaces().withName("default").get() != null);
    }

    @AfterAll
    static void stop() {
        admin.close();
        server.close();
    }

    @BeforeEach
    void connect() throws Exception {
        proxy = new FaultyTcpProxy(server.port());
        client = new KubernetesClientBuilder()
                .withConfig(server.client()
                        .withMasterUrl("https://127.0.0.1:" + proxy.port())
                        .withHttp2Disable(true)
                        .build())
                .build();
        events = new Events(client, "replica-a", Clock.systemUTC(), System::nanoTime);
        var leadership = new Leadership("pod-a", Duration.ofSeconds(1), lease -> {}, () -> true);
        cluster = KubernetesClusterTest.cluster(client, leadership, events, metrics);
    }

    @AfterEach
    void disconnect() {
        events.close();
        client.close();
        proxy.close();
    }

    @Test
    void aBindingGivesThePodItsNodeAndItsAnnotationsInOneWrite() {
        Pod pod = create("");

        assertThat(cluster.bind(PodReader.id(pod), PodReader.version(pod), "node1", ALLOCATION))
                .isInstanceOf(WriteOutcome.Done.class);

        Pod bound = admin.resource(pod).get();
        assertThat(bound.getSpec().getNodeName()).isEqualTo("node1");
        assertThat(bound.getMetadata().getAnnotations()).containsAllEntriesOf(ALLOCATION);
        assertBound(pod, "node1");
        assertThat(metrics.get("aliquot.binding.write")
                        .tag("outcome", "done")
                        .timer()
                        .count())
                .isEqualTo(1);
    }

    /** So the scheduler computes the size before it binds a pod, and does not before it resizes one. */
    @Test
    void aBindingMayExceedTheSizeOfAnnotationsAndWhatAPodIsPatchedToMayNot() {
        long left = AllocationAnnotations.MOST_BYTES - AllocationAnnotations.bytes(ALLOCATION);
        Pod pod = create("", Map.of("text", "x".repeat((int) left - "text".length() + 1)));

        assertThat(cluster.bind(PodReader.id(pod), PodReader.version(pod), "node1", ALLOCATION))
                .isInstanceOf(WriteOutcome.Done.class);

        Pod bound = admin.resource(pod).get();
        assertThat(cluster.resize(PodReader.id(pod), PodReader.version(bound), ALLOCATION))
                .isInstanceOfSatisfying(
                        WriteOutcome.Refused.class,
                        refused -> assertThat(refused.why()).contains("annotations", "Too long"));
    }

    @Test
    void bindingABoundPodConflicts() {
        Pod pod = create("node2");

        assertThat(cluster.bind(PodReader.id(pod), PodReader.version(pod), "node1", ALLOCATION))
                .isInstanceOf(WriteOutcome.Conflicts.class);
        assertBound(pod, "node2");
    }

    @Test
    void aBindingForARecreatedPodOfThatNameIsRefused() {
        Pod pod = create("");
        var before = new PodId("default", pod.getMetadata().getName(), "11111111-1111-1111-1111-111111111111");

        assertThat(cluster.bind(before, PodReader.version(pod), "node1", ALLOCATION))
                .isNotInstanceOf(WriteOutcome.Done.class);
        assertThat(admin.resource(pod).get().getSpec().getNodeName()).isNull();
        assertThat(cluster.read(before)).isEqualTo(new PodState.Gone());
    }

    @Test
    void bindingADeletedPodIsRefused() {
        var gone = new PodId("default", "nobody", "11111111-1111-1111-1111-111111111111");

        assertThat(cluster.bind(gone, 1, "node1", ALLOCATION)).isInstanceOf(WriteOutcome.Refused.class);
        assertThat(cluster.read(gone)).isEqualTo(new PodState.Gone());
    }

    @Test
    void anEndedPodCountsAsGone() {
        Pod pod = create("node1");
        end(pod);

        assertThat(cluster.read(PodReader.id(pod))).isEqualTo(new PodState.Gone());
    }

    @Test
    void aBindingToAServerThatIsDownHasNoEffect() throws InterruptedException {
        Pod pod = create("");
        proxy.stopListening();

        assertThat(cluster.bind(PodReader.id(pod), PodReader.version(pod), "node1", ALLOCATION))
                .isInstanceOf(WriteOutcome.Unheard.class);
        assertThat(cluster.read(PodReader.id(pod))).isInstanceOf(PodState.Unreadable.class);
        assertThat(cluster.wake("node1")).isFalse();
    }

    /** What is asked next must not wait on the connection whose answers are lost. */
    @Test
    void aLostAnswerMeansUnknownAndTheNextReadFindsTheEffect() {
        Pod before = create("");
        assertThat(cluster.bind(PodReader.id(before), PodReader.version(before), "node1", ALLOCATION))
                .as("so there is a connection")
                .isInstanceOf(WriteOutcome.Done.class);
        Pod pod = create("");
        assertThat(cluster.read(PodReader.id(pod))).isInstanceOf(PodState.Unbound.class);
        proxy.dropResponses();
        long begin = System.nanoTime();

        WriteOutcome outcome = cluster.bind(PodReader.id(pod), PodReader.version(pod), "node1", ALLOCATION);

        assertThat(outcome).isInstanceOf(WriteOutcome.Unknown.class);
        assertThat(Duration.ofNanos(System.nanoTime() - begin))
                .as("kube-scheduler waits for 10 s, and the pod is read after this")
                .isLessThan(Duration.ofSeconds(6));
        proxy.stopDropping();
        assertBound(pod, "node1");
    }

    /** Nor was anything sent where the other side does not even encrypt. */
    @Test
    void aBindingWithoutAConnectionHasNoEffect() {
        Pod pod = create("");
        proxy.dropResponses();

        assertThat(cluster.bind(PodReader.id(pod), PodReader.version(pod), "node1", ALLOCATION))
                .isInstanceOf(WriteOutcome.Unheard.class);
        assertThat(admin.resource(pod).get().getSpec().getNodeName()).isNull();
    }

    @Test
    void annotationsOfANodeAreSetAndRemovedOnlyAtTheVersionThatWasRead() {
        String name = "annotated";
        Node node = admin.resource(new NodeBuilder()
                        .withNewMetadata()
                        .withName(name)
                        .addToAnnotations("example.com/other", "stays")
                        .endMetadata()
                        .build())
                .create();
        long version = Long.parseLong(node.getMetadata().getResourceVersion());

        assertThat(cluster.annotate(name, version, Map.of("a", Optional.of("true"), "b", Optional.of("true"))))
                .isEqualTo(new WriteOutcome.Done());
        assertThat(cluster.annotate(name, version, Map.of("a", Optional.empty())))
                .as("an older version")
                .isInstanceOf(WriteOutcome.Conflicts.class);
        node = admin.nodes().withName(name).get();
        assertThat(node.getMetadata().getAnnotations())
                .isEqualTo(Map.of("example.com/other", "stays", "a", "true", "b", "true"));

        version = Long.parseLong(node.getMetadata().getResourceVersion());
        assertThat(cluster.annotate(name, version, Map.of("a", Optional.empty(), "b", Optional.empty())))
                .isEqualTo(new WriteOutcome.Done());
        assertThat(admin.nodes().withName(name).get().getMetadata().getAnnotations())
                .isEqualTo(Map.of("example.com/other", "stays"));
    }

    /** From 128 KiB on the server compresses. */
    @Test
    void listBoundPodsReadsAllPages() throws IOException {
        var bound = new ArrayList<Pod>();
        for (int i = 0; i < ListWatchClient.PAGE + 10; i++) {
            bound.add(create("node1"));
        }
        Pod ended = create("node1");
        end(ended);
        Pod unbound = create("");
        var ledger = new Ledger(System::nanoTime, new LedgerListener() {
            @Override
            public void capacityFreed(String node) {}

            @Override
            public void overallocated(String node, String gpu) {}
        });

        KubernetesCluster.listBoundPods(
                new ListWatchClient(
                        new ApiServerClient(client.getConfiguration()), client.getKubernetesSerialization()),
                ledger);

        assertThat(bound)
                .allMatch(pod -> ledger.nodeOf(pod.getMetadata().getUid()).equals(Optional.of("node1")));
        assertThat(ledger.nodeOf(ended.getMetadata().getUid())).isEmpty();
        assertThat(ledger.nodeOf(unbound.getMetadata().getUid())).isEmpty();
    }

    @Test
    void theSameWarningOfTwoReplicasIsOneEvent() {
        Pod pod = create("");
        Clock clock = Clock.fixed(Instant.parse("2026-03-01T00:00:00Z"), ZoneOffset.UTC);
        try (var one = new Events(client, "replica-a", clock, System::nanoTime);
                var other = new Events(client, "replica-b", clock, System::nanoTime)) {
            for (int i = 0; i < 3; i++) {
                one.warn(pod, "Reason", "a sentence");
                other.warn(pod, "Reason", "a sentence");
            }
            one.warn(pod, "Reason", "another sentence, " + "of many words, ".repeat(200));
            await("both", () -> events(pod).size() == 2);
        }
        assertThat(events(pod)).hasSize(2).allSatisfy(event -> {
            assertThat(event.getType()).isEqualTo("Warning");
            assertThat(event.getReason()).isEqualTo("Reason");
            assertThat(event.getReportingComponent()).isEqualTo("aliquot-scheduler");
            assertThat(event.getMessage()).startsWith("a").hasSizeLessThanOrEqualTo(1024);
        });
    }

    @Test
    void aWarningAboutAnOccasionIsOneEventWhateverItsTextAndTime() {
        Pod pod = create("");
        Instant start = Instant.parse("2026-03-01T00:00:00Z");
        for (int hour = 0; hour < 3; hour++) {
            Clock clock = Clock.fixed(start.plus(Duration.ofHours(hour)), ZoneOffset.UTC);
            try (var replica = new Events(client, "replica-" + hour, clock, System::nanoTime)) {
                replica.warnOnce(pod, "Rejected", "first", hour + " pods");
                replica.warnOnce(pod, "Rejected", "hour-" + hour, "a sentence");
                int sent = hour + 2;
                await("both", () -> events(pod).size() == sent);
            }
        }
        assertThat(events(pod))
                .filteredOn(event -> event.getMessage().endsWith(" pods"))
                .singleElement()
                .satisfies(event -> {
                    assertThat(event.getMessage()).isEqualTo("0 pods");
                    assertThat(event.getReason()).isEqualTo("Rejected");
                });
    }

    @Test
    void aLostEventIsSentWithTheNextWarning() throws Exception {
        Pod pod = create("");
        proxy.stopListening();
        events.warn(pod, "Reason", "a sentence");
        proxy.startListening();

        await("the event", () -> {
            events.warn(pod, "Reason", "a sentence");
            return events(pod).size() == 1;
        });
    }

    private void assertBound(Pod pod, String node) {
        assertThat(cluster.read(PodReader.id(pod)))
                .isInstanceOfSatisfying(
                        PodState.Bound.class,
                        bound -> assertThat(bound.pod().node()).isEqualTo(node));
    }

    private static List<Event> events(Pod pod) {
        return admin.v1()
                .events()
                .inNamespace("default")
                .withField("involvedObject.uid", pod.getMetadata().getUid())
                .list()
                .getItems();
    }

    private static Pod create(String node) {
        return create(node, node.isEmpty() ? Map.of() : ALLOCATION);
    }

    private static Pod create(String node, Map<String, String> annotations) {
        return admin.resource(new PodBuilder()
                        .withNewMetadata()
                        .withNamespace("default")
                        .withName("pod-" + NAMES.incrementAndGet())
                        .withAnnotations(annotations)
                        .endMetadata()
                        .withNewSpec()
                        .withNodeName(node.isEmpty() ? null : node)
                        .addNewContainer()
                        .withName("main")
                        .withImage("image")
                        .endContainer()
                        .endSpec()
                        .build())
                .create();
    }

    private static void end(Pod pod) {
        admin.resource(pod)
                .editStatus(running -> running.edit()
                        .editOrNewStatus()
                        .withPhase("Succeeded")
                        .endStatus()
                        .build());
    }
}
