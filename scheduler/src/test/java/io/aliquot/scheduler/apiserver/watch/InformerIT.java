package io.aliquot.scheduler.apiserver.watch;

import static io.aliquot.testing.Await.await;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.aliquot.scheduler.apiserver.client.ListWatchClient;
import io.aliquot.scheduler.apiserver.client.ResourceType;
import io.aliquot.testing.ApiServer;
import io.aliquot.testing.FaultyTcpProxy;
import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.ConfigMapList;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Whatever fails between the informer and a real API server, in the end it knows exactly the objects that exist. */
class InformerIT {
    private static ApiServer server;
    private static KubernetesClient admin;

    private static final ResourceType<ConfigMap> CONFIG_MAPS = new ResourceType<>(
            "config maps",
            "/api/v1/namespaces/default/configmaps",
            "labelSelector=test",
            ResourceType.Encoding.JSON,
            ConfigMapList.class,
            ConfigMap::new);

    private final AtomicLong nanoTime = new AtomicLong();
    /** The names of the objects that the listeners know, by uid. */
    private final Map<String, String> objects = new ConcurrentSkipListMap<>();
    /** The uids that the listeners have been told to be gone. */
    private final Set<String> gone = ConcurrentHashMap.newKeySet();
    /** The latest content of each object, by name. */
    private final Map<String, String> content = new ConcurrentHashMap<>();

    private FaultyTcpProxy proxy;
    private KubernetesClient client;

    @SuppressWarnings("NullAway.Init") // by the tests themselves
    private Informer<ConfigMap> watched;

    private volatile String poison = "";

    @BeforeAll
    static void start(@TempDir Path folder) throws Exception {
        server = new ApiServer(folder);
        admin = new KubernetesClientBuilder()
                .withConfig(server.client().build())
                .build();
    }

    @AfterAll
    static void stop() {
        admin.close();
        server.close();
    }

    @BeforeEach
    void watch() throws Exception {
        admin.configMaps().inNamespace("default").withLabel("test").delete();
        proxy = new FaultyTcpProxy(server.port());
        client = new KubernetesClientBuilder()
                .withConfig(server.client()
                        .withMasterUrl("https://127.0.0.1:" + proxy.port())
                        .withHttp2Disable(true)
                        .withRequestTimeout(2000)
                        .build())
                .build();
    }

    @AfterEach
    void close() {
        watched.close();
        client.close();
        proxy.close();
    }

    private void startWatching() {
        watched = Informer.start(
                new ListWatchClient(
                        new ApiServerClient(client.getConfiguration()), client.getKubernetesSerialization()),
                CONFIG_MAPS,
                map -> {
                    objects.put(map.getMetadata().getUid(), map.getMetadata().getName());
                    if (map.getMetadata().getName().equals(poison)) {
                        throw new IllegalStateException("the listener of this test fails");
                    }
                    content.put(map.getMetadata().getName(), map.getData().get("content"));
                },
                map -> {
                    objects.remove(map.getMetadata().getUid());
                    gone.add(map.getMetadata().getUid());
                },
                nanoTime::get);
        await("the first list", () -> watched.waitsFor().isEmpty());
    }

    @Test
    void theInformerIsReadyOnceAllPagesAreListed() {
        IntStream.range(0, ListWatchClient.PAGE * 2 + 50).forEach(i -> make("map-" + i, "first"));

        startWatching();

        assertThat(objects).hasSize(ListWatchClient.PAGE * 2 + 50);
    }

    @Test
    void theInformerIsNotReadyBeforeTheServerAnswers() throws Exception {
        make("early", "first");
        proxy.dropAll();
        var starting = new Thread(this::startWatching);
        starting.start();
        for (int attempt = 1; attempt <= 3; attempt++) {
            int discarded = proxy.discarded();
            await("an attempt", () -> proxy.discarded() > discarded);
            proxy.resetConnections();
        }
        assertThat(objects).isEmpty();

        proxy.stopDropping();
        proxy.resetConnections();

        starting.join(20_000);
        assertThat(objects.values()).containsExactly("early");
    }

    @Test
    void aCutWatchContinuesAtItsResourceVersion() throws Exception {
        make("before", "first");
        startWatching();

        for (int i = 0; i < 3; i++) {
            proxy.stopListening();
            make("during-" + i, "first");
            remove("before");
            make("before", "again-" + i);
            proxy.startListening();
            awaitConvergence();
        }
        assertThat(content).containsEntry("before", "again-2");
    }

    /** 6 s. The lists and watches of before know versions that the API server has not reached. */
    @Test
    void anObjectThatIsOlderThanBeforeSinceEtcdWasRestoredIsReportedAsGoneAndThenAsPresent() throws Exception {
        make("stays", "first");
        make("changes", "first");
        make("goes", "first");
        startWatching();
        String uid = named("changes").getMetadata().getUid();
        server.backUp();
        await("etcd to answer", () -> updated("changes", "later"));
        remove("goes");
        make("comes", "first");
        awaitConvergence();
        await("the change", () -> "later".equals(content.get("changes")));
        gone.clear();

        server.restore();
        watched.restart(); // as WatchHealthCheck does

        awaitConvergence();
        await("the older object", () -> "first".equals(content.get("changes")));
        assertThat(gone)
                .contains(uid)
                .doesNotContain(named("stays").getMetadata().getUid());
        assertThat(objects.values()).containsExactlyInAnyOrder("stays", "changes", "goes");
    }

    private static ConfigMap named(String name) {
        return admin.configMaps().inNamespace("default").withName(name).get();
    }

    private static boolean updated(String name, String content) {
        try {
            admin.resource(named(name).edit().addToData("content", content).build())
                    .update();
            return true;
        } catch (KubernetesClientException e) {
            return false;
        }
    }

    /** The API server answers 410 Gone to a watch from a revision that etcd has compacted. */
    @Test
    void aCompactedResourceVersionLeadsToANewListThatFindsDeletions() throws Exception {
        make("stays", "first");
        make("goes", "first");
        make("made-again", "first");
        startWatching();
        proxy.stopListening();

        remove("goes");
        remove("made-again");
        make("made-again", "second");
        make("comes", "first");
        server.kill(); // with its memory of recent events
        server.compact();
        server.startAgain();
        proxy.startListening();

        awaitConvergence();
        assertThat(content).containsEntry("made-again", "second");
        assertThat(watched.broken()).isEmpty();
    }

    /** Like a firewall that has forgotten a connection: neither side sees an error, and nothing arrives. */
    @Test
    void aRestartedInformerMissesNothing() {
        make("stays", "first");
        make("goes", "first");
        make("made-again", "first");
        startWatching();
        awaitWatch();
        proxy.dropAll();
        remove("goes");
        remove("made-again");
        make("made-again", "second");
        make("comes", "first");
        await("the watch's events to be lost", () -> proxy.discarded() > 0);
        proxy.stopDropping();
        assertThat(objects.values())
                .as("without a restart the informer receives nothing")
                .contains("goes");

        watched.restart();

        awaitConvergence();
        assertThat(content).containsEntry("made-again", "second");
        make("later", "first");
        awaitConvergence();
    }

    @Test
    void aRestartOfAHealthyInformerLosesNothing() {
        startWatching();
        for (int i = 0; i < 20; i++) {
            make("map-" + i, "first");
            if (i % 3 == 2) {
                remove("map-" + (i - 1));
                watched.restart();
            }
        }
        awaitConvergence();
    }

    @Test
    void idleTimeIsTheTimeSinceTheLastEvent() {
        startWatching();
        watched.idleTime();
        nanoTime.addAndGet(Duration.ofSeconds(5).toNanos());
        assertThat(watched.idleTime()).isEqualTo(Duration.ofSeconds(5));

        make("news", "first");
        awaitConvergence();

        await("the news counts", () -> watched.idleTime().isZero());
        assertThat(watched.knows(admin.configMaps()
                        .inNamespace("default")
                        .withName("news")
                        .get()
                        .getMetadata()
                        .getResourceVersion()))
                .isTrue();
        assertThat(watched.knows("1")).isFalse();
    }

    @Test
    void aDeadWatchIsFoundByReadingTheLease() {
        make("lease", "first");
        startWatching();
        awaitWatch();
        var healthCheck = new WatchHealthCheck(watched, List.of(watched), () -> Optional.of(version("lease")));
        healthCheck.check();
        proxy.dropAll();
        remove("lease");
        make("lease", "renewed");
        await("the watch's events to be lost", () -> proxy.discarded() > 0);
        proxy.stopDropping();
        int connections = proxy.connections();

        healthCheck.check();
        nanoTime.addAndGet(WatchHealthCheck.RENEWED.toNanos() + 1);
        healthCheck.check();
        assertThat(proxy.connections())
                .as("a change just written may still arrive")
                .isEqualTo(connections);
        healthCheck.check();

        awaitConvergence();
        assertThat(content).containsEntry("lease", "renewed");
    }

    @Test
    void anIdleWatchWithoutChangesIsNotRestarted() {
        make("lease", "first");
        startWatching();
        awaitWatch();
        var healthCheck = new WatchHealthCheck(watched, List.of(watched), () -> Optional.of(version("lease")));
        int connections = proxy.connections();
        for (int i = 0; i < 5; i++) {
            nanoTime.addAndGet(WatchHealthCheck.RENEWED.toNanos() + 1);
            healthCheck.check();
        }
        make("news", "first");
        awaitConvergence(); // through the watch, which a restart would have closed
        assertThat(proxy.connections()).isEqualTo(connections);

        nanoTime.addAndGet(WatchHealthCheck.BOOKMARKED.toNanos() + 1);
        healthCheck.check();

        await("another watch", () -> proxy.connections() > connections);
        awaitConvergence();
    }

    private static String version(String name) {
        return admin.configMaps()
                .inNamespace("default")
                .withName(name)
                .get()
                .getMetadata()
                .getResourceVersion();
    }

    @Test
    void aFailingListenerDoesNotKeepOtherObjectsFromBeingDelivered() {
        poison = "poison";
        make("poison", "first");
        make("wholesome", "first");

        startWatching();
        make("later", "first");

        awaitConvergence();
        assertThat(content).containsOnlyKeys("wholesome", "later");
        assertThat(watched.broken()).isEmpty();
    }

    private static void make(String name, String content) {
        admin.resource(new ConfigMapBuilder()
                        .withNewMetadata()
                        .withNamespace("default")
                        .withName(name)
                        .addToLabels("test", "")
                        .endMetadata()
                        .addToData("content", content)
                        .build())
                .create();
    }

    private static void remove(String name) {
        admin.configMaps().inNamespace("default").withName(name).delete();
    }

    /** A complete list does not mean that the watch has begun. */
    private void awaitWatch() {
        make("watched", "first");
        awaitConvergence();
    }

    private void awaitConvergence() {
        Set<String> existing = new TreeSet<>();
        admin.configMaps()
                .inNamespace("default")
                .withLabel("test")
                .list()
                .getItems()
                .forEach(map -> existing.add(map.getMetadata().getUid()));
        await("the objects that exist", () -> objects.keySet().equals(existing));
    }
}
