package io.aliquot.lab.chart;

import static org.assertj.core.api.Assertions.assertThat;

import com.marcnuri.helm.Helm;
import io.aliquot.testing.ApiServer;
import io.aliquot.testing.ApiServer.Caller;
import io.aliquot.testing.ApiServer.Response;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.io.TempDir;

/**
 * What becomes of another scheduler's Bindings while the API server is killed and starts again, with real kube-scheduler,
 * API server and etcd. An API server that starts refuses Bindings by itself, as long as it does not know the policies of
 * the cluster; a run without Aliquot tells those refusals apart.
 */
@EnabledIfEnvironmentVariable(named = "ALIQUOT_LONG", matches = "1")
@Tag("long")
class ForeignBindingsIT {
    private static final int KILLS = Integer.getInteger("aliquot.kills", 20);
    private static final int LEASES = 10_000;
    private static final int PODS_PER_SECOND = 50;
    private static final String NAMESPACE = "tenant";

    private static final String AUDIT = """
        apiVersion: audit.k8s.io/v1
        kind: Policy
        omitStages: [RequestReceived]
        rules:
        - level: Metadata
          verbs: [create]
          resources: [{group: "", resources: [pods/binding]}]
        - level: None
        """;

    /** Numbers of Bindings. */
    private record Outcome(int done, int notReady, List<String> ofOurs, List<String> other) {
        @Override
        public String toString() {
            return done + " Bindings done, " + notReady + " refused as not yet ready, " + ofOurs.size()
                    + " by a policy of Aliquot's, " + other.size() + " otherwise";
        }
    }

    @Test
    void noneIsRefusedByAPolicyOfOursWhileTheApiServerStarts(@TempDir Path folder) throws Exception {
        Path audit = folder.resolve("audit.log");
        Path policy = Files.writeString(folder.resolve("audit.yaml"), AUDIT);
        try (var server = new ApiServer(folder, "--audit-policy-file=" + policy, "--audit-log-path=" + audit)) {
            prepare(server);
            Process scheduler = kubeScheduler(server, folder);
            try {
                Outcome control = killing(server, audit);
                System.out.println("without Aliquot: " + control);

                new Helm(Chart.FOLDER)
                        .install()
                        .withName(Chart.RELEASE)
                        .withNamespace(Chart.NAMESPACE)
                        .createNamespace()
                        .withKubeConfigContents(server.kubeconfig())
                        .call();
                Outcome installed = killing(server, audit);
                System.out.println("with Aliquot: " + installed);

                Helm.uninstall(Chart.RELEASE)
                        .withNamespace(Chart.NAMESPACE)
                        .withKubeConfigContents(server.kubeconfig())
                        .call();
                Outcome uninstalled = killing(server, audit);
                System.out.println("after helm uninstall: " + uninstalled);

                for (Outcome outcome : List.of(installed, uninstalled)) {
                    assertThat(outcome.ofOurs()).isEmpty();
                    assertThat(outcome.done()).isGreaterThan(KILLS * PODS_PER_SECOND);
                }
            } finally {
                scheduler.destroyForcibly();
            }
        }
    }

    private static void prepare(ApiServer server) throws InterruptedException {
        Caller admin = server.admin();
        admin.post("/api/v1/namespaces", """
            {apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {aliquot.io/webhook: ignore}}}""".formatted(NAMESPACE)).expectSuccess();
        for (int node = 0; node < 4; node++) {
            admin.post("/api/v1/nodes", """
                apiVersion: v1
                kind: Node
                metadata: {name: node%d}
                status:
                  capacity: {cpu: "8000", memory: 8000Gi, pods: "100000"}
                  allocatable: {cpu: "8000", memory: 8000Gi, pods: "100000"}
                  conditions: [{type: Ready, status: "True"}]
                """.formatted(node)).expectSuccess();
        }
        try (var threads = Executors.newFixedThreadPool(8)) {
            for (int i = 0; i < LEASES; i++) {
                String lease = """
                    {apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: lease-%d}, spec: {holderIdentity: a}}""".formatted(i);
                threads.execute(
                        () -> admin.post("/apis/coordination.k8s.io/v1/namespaces/" + NAMESPACE + "/leases", lease)
                                .expectSuccess());
            }
            threads.shutdown();
            assertThat(threads.awaitTermination(5, TimeUnit.MINUTES)).isTrue();
        }
    }

    private static Process kubeScheduler(ApiServer server, Path folder) throws IOException, InterruptedException {
        Path kubeconfig = Files.writeString(folder.resolve("kubeconfig"), server.kubeconfig());
        return new ProcessBuilder(
                        ApiServer.programs().resolve("kube-scheduler").toString(),
                        "--kubeconfig=" + kubeconfig,
                        "--authentication-kubeconfig=" + kubeconfig,
                        "--authorization-kubeconfig=" + kubeconfig,
                        "--leader-elect=false",
                        "--secure-port=0",
                        "--kube-api-qps=1000",
                        "--kube-api-burst=1000")
                .redirectErrorStream(true)
                .redirectOutput(folder.resolve("kube-scheduler.log").toFile())
                .start();
    }

    /** Kills the API server again and again while pods are created; returns what the audit log says of this time. */
    private static Outcome killing(ApiServer server, Path audit) throws Exception {
        int seen = Files.readAllLines(audit).size();
        var goesOn = new AtomicBoolean(true);
        var names = new AtomicInteger();
        String prefix = "p" + seen + "-";
        Thread creator = Thread.ofPlatform().start(() -> {
            Caller admin = server.admin();
            long next = System.nanoTime();
            while (goesOn.get()) {
                try {
                    admin.post("/api/v1/namespaces/" + NAMESPACE + "/pods", """
                        {apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {tolerations: [{operator: Exists}], containers: [{name: c, image: i}]}}""".formatted(
                                    prefix + names.incrementAndGet()));
                } catch (RuntimeException e) {
                    // the API server is away
                }
                next = Math.max(
                        next + TimeUnit.SECONDS.toNanos(1) / PODS_PER_SECOND,
                        System.nanoTime() - TimeUnit.SECONDS.toNanos(1));
                LockSupport.parkNanos(next - System.nanoTime());
            }
        });
        for (int kill = 0; kill < KILLS; kill++) {
            awaitBindings(audit, PODS_PER_SECOND);
            server.kill();
            server.startAgain();
        }
        awaitBindings(audit, PODS_PER_SECOND);
        goesOn.set(false);
        creator.join();
        return outcome(Files.readAllLines(audit).stream().skip(seen).toList());
    }

    /** Waits for this many further Bindings that succeeded. */
    private static void awaitBindings(Path audit, int count) throws Exception {
        try (var log = Files.newBufferedReader(audit)) {
            log.skip(Files.size(audit));
            int found = 0;
            for (int i = 0; i < 600 && found < count; i++) {
                TimeUnit.MILLISECONDS.sleep(100);
                for (String line = log.readLine(); line != null; line = log.readLine()) {
                    found += line.contains("\"code\":201") ? 1 : 0;
                }
            }
        }
    }

    private static Outcome outcome(List<String> lines) {
        int done = 0;
        int notReady = 0;
        var ofOurs = new ArrayList<String>();
        var other = new ArrayList<String>();
        for (String line : lines) {
            if (!line.endsWith("}")) {
                continue; // the API server was killed while it wrote the line
            }
            var event = new Response(200, line, List.of());
            int code = Integer.parseInt(event.field("responseStatus", "code"));
            String message = event.field("responseStatus", "message");
            if (code < 300) {
                done++;
            } else if (message.contains("aliquot")) {
                ofOurs.add(message);
            } else if (message.contains("not yet ready")) {
                notReady++;
            } else {
                other.add(message);
            }
        }
        return new Outcome(done, notReady, ofOurs, other);
    }
}
