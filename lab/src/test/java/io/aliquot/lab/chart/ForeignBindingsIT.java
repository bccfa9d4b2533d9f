package io.aliquot.lab.chart;

import static org.assertj.core.api.Assertions.assertThat;

import com.marcnuri.helm.Helm;
import io.aliquot.testing.ApiServer;
import io.aliquot.testing.ApiServer.Caller;
import io.aliquot.testing.ApiServer.Response;
import java.io.UncheckedIOException;
import java.net.HttpURLConnection;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.io.TempDir;

/**
 * What becomes of another scheduler's Bindings while the API server is killed and starts again, with real API server and
 * etcd. An API server that starts refuses Bindings by itself, as long as it does not know the policies of the cluster; a
 * run without Aliquot tells those refusals apart. The test sends the Bindings: a kube-scheduler waits up to half a minute
 * before it tries a lost watch again, and binds nothing in the API server's first second.
 */
@EnabledIfEnvironmentVariable(named = "ALIQUOT_LONG", matches = "1")
@Tag("long")
class ForeignBindingsIT {
    private static final int KILLS = Integer.getInteger("aliquot.kills", 20);
    private static final int LEASES = 10_000;
    /** Large, so that the API server needs more than a second to read them, as a busy one does. */
    private static final String NOTE = "x".repeat(10_000);

    /** With {@link #PAUSE_MS} before each request they create and bind 50 pods a second. */
    private static final int SENDERS = 8;

    private static final int PAUSE_MS = 80;
    private static final int BINDINGS_BETWEEN_KILLS = 50;
    private static final String NAMESPACE = "/api/v1/namespaces/tenant";

    /** What became of Bindings; refusals are the API server's answers. */
    private record Outcome(AtomicInteger done, AtomicInteger notReady, Queue<String> ofOurs, Queue<String> other) {
        void add(Response response) {
            if (response.code() < 300) {
                done.incrementAndGet();
            } else if (response.body().contains("aliquot")) {
                ofOurs.add(response.body());
            } else if (response.body().contains("not yet ready")) {
                notReady.incrementAndGet();
            } else if (response.code() != HttpURLConnection.HTTP_CONFLICT) { // else its first answer was lost
                other.add(response.body());
            }
        }

        @Override
        public String toString() {
            return done + " Bindings done, " + notReady + " refused as not yet ready, " + ofOurs.size()
                    + " by a policy of Aliquot's, " + other.size() + " otherwise "
                    + new HashSet<>(ofOurs) + new HashSet<>(other);
        }
    }

    @Test
    void noneIsRefusedByAPolicyOfOursWhileTheApiServerStarts(@TempDir Path folder) throws Exception {
        try (var server = new ApiServer(folder)) {
            prepare(server);
            System.out.println("without Aliquot: " + killing(server, "without"));

            new Helm(Chart.FOLDER)
                    .install()
                    .withName(Chart.RELEASE)
                    .withNamespace(Chart.NAMESPACE)
                    .createNamespace()
                    .withKubeConfigContents(server.kubeconfig())
                    .call();
            Outcome installed = killing(server, "with");
            System.out.println("with Aliquot: " + installed);

            Helm.uninstall(Chart.RELEASE)
                    .withNamespace(Chart.NAMESPACE)
                    .withKubeConfigContents(server.kubeconfig())
                    .call();
            Outcome uninstalled = killing(server, "after");
            System.out.println("after helm uninstall: " + uninstalled);

            assertThat(installed.ofOurs()).isEmpty();
            assertThat(uninstalled.ofOurs()).isEmpty();
        }
    }

    private static void prepare(ApiServer server) throws InterruptedException {
        Caller admin = server.admin();
        admin.post("/api/v1/namespaces", """
            {apiVersion: v1, kind: Namespace, metadata: {name: tenant, labels: {aliquot.io/webhook: ignore}}}""").expectSuccess();
        admin.post("/api/v1/nodes", "{apiVersion: v1, kind: Node, metadata: {name: node}}")
                .expectSuccess();
        try (var threads = Executors.newFixedThreadPool(8)) {
            for (int i = 0; i < LEASES; i++) {
                String lease = """
                    {apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: lease-%d, annotations: {note: %s}}, spec: {holderIdentity: a}}""".formatted(i, NOTE);
                threads.execute(() -> admin.post("/apis/coordination.k8s.io/v1/namespaces/tenant/leases", lease)
                        .expectSuccess());
            }
            threads.shutdown();
            assertThat(threads.awaitTermination(5, TimeUnit.MINUTES)).isTrue();
        }
    }

    /** Kills the API server again and again while Bindings are sent. */
    private static Outcome killing(ApiServer server, String name) throws Exception {
        var outcome = new Outcome(
                new AtomicInteger(), new AtomicInteger(), new ConcurrentLinkedQueue<>(), new ConcurrentLinkedQueue<>());
        var goesOn = new AtomicBoolean(true);
        try (var senders = Executors.newVirtualThreadPerTaskExecutor()) {
            for (int i = 0; i < SENDERS; i++) {
                String prefix = name + "-" + i + "-";
                var unused = senders.submit(() -> {
                    for (int pod = 0; goesOn.get(); pod++) {
                        bind(server, prefix + pod, outcome, goesOn);
                    }
                    return null;
                });
            }
            try {
                for (int kill = 0; kill < KILLS; kill++) {
                    awaitBindings(outcome);
                    server.kill();
                    server.startAgain();
                }
                awaitBindings(outcome);
            } finally {
                goesOn.set(false);
            }
        }
        return outcome;
    }

    private static void bind(ApiServer server, String pod, Outcome outcome, AtomicBoolean goesOn)
            throws InterruptedException {
        repeat(goesOn, () -> server.admin().post(NAMESPACE + "/pods", """
            {apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {schedulerName: other, containers: [{name: c, image: i}]}}""".formatted(pod)));
        repeat(goesOn, () -> {
            Response response = server.mighty("system:kube-scheduler")
                    .post(NAMESPACE + "/pods/" + pod + "/binding", """
                        {apiVersion: v1, kind: Binding, metadata: {name: %s}, target: {kind: Node, name: node}}""".formatted(pod));
            outcome.add(response);
            return response;
        });
    }

    /** Sends the request until it has had an effect. */
    private static void repeat(AtomicBoolean goesOn, Supplier<Response> request) throws InterruptedException {
        while (goesOn.get()) {
            TimeUnit.MILLISECONDS.sleep(PAUSE_MS);
            try {
                int code = request.get().code();
                if (code < 300 || code == HttpURLConnection.HTTP_CONFLICT) {
                    return;
                }
            } catch (UncheckedIOException e) {
                // The API server is away.
            }
        }
    }

    private static void awaitBindings(Outcome outcome) throws InterruptedException {
        int before = outcome.done().get();
        for (int i = 0; i < 1200 && outcome.done().get() < before + BINDINGS_BETWEEN_KILLS; i++) {
            TimeUnit.MILLISECONDS.sleep(50);
        }
        assertThat(outcome.done().get()).isGreaterThanOrEqualTo(before + BINDINGS_BETWEEN_KILLS);
    }
}
