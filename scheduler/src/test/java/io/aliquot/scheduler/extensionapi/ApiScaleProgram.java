package io.aliquot.scheduler.extensionapi;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.Placement;
import io.aliquot.api.usage.UsageHistory;
import io.aliquot.scheduler.LedgerConfiguration;
import io.aliquot.scheduler.cluster.FakeCluster;
import io.aliquot.scheduler.extensionapi.ExtensionApiProgram.FakeControlPlane;
import io.aliquot.scheduler.extensionapi.endpoints.DocumentsController;
import io.aliquot.scheduler.extensionapi.endpoints.ObjectsController;
import io.aliquot.scheduler.extensionapi.identity.FrontProxyKeeper;
import io.aliquot.scheduler.extensionapi.identity.IdentityFilter;
import io.aliquot.scheduler.extensionapi.identity.LeaderProxy;
import io.aliquot.scheduler.extensionapi.machinery.Watches;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuUsage;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.ShareUsage;
import io.aliquot.scheduler.extensionapi.objects.GpuNodeResource;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes.NodeMetadata;
import io.aliquot.scheduler.extensionapi.objects.GpuPod;
import io.aliquot.scheduler.extensionapi.objects.GpuPod.ParsedRequest;
import io.aliquot.scheduler.extensionapi.objects.GpuQuotas;
import io.aliquot.scheduler.extensionapi.objects.GpuResource;
import io.aliquot.scheduler.extensionapi.objects.GpuShares;
import io.aliquot.scheduler.extensionapi.objects.PendingReasons;
import io.aliquot.scheduler.extensionapi.objects.UsageLookup;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.ContainerShare;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.server.ports.RandomPorts;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Queue;
import java.util.concurrent.locks.LockSupport;
import org.bouncycastle.asn1.x509.KeyPurposeId;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.webmvc.autoconfigure.error.ErrorMvcAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.ComponentScan.Filter;
import org.springframework.context.annotation.FilterType;
import org.springframework.context.annotation.Import;

/**
 * A replica of a large cluster in a process of its own: the extender's port and the aggregated API over TLS, with a real
 * ledger; the watches on pods and nodes are simulated. Commands on its standard input, an answer to each:
 * {@code rate N} (pods that come and go per second), {@code heap} (MiB in use after a collection), {@code exit}.
 */
@SpringBootConfiguration(proxyBeanMethods = false)
@EnableAutoConfiguration(exclude = ErrorMvcAutoConfiguration.class)
@ComponentScan(
        basePackages = {
            "io.aliquot.scheduler.server",
            "io.aliquot.scheduler.settings",
            "io.aliquot.scheduler.explain",
            "io.aliquot.scheduler.extender",
            "io.aliquot.scheduler.pending",
            "io.aliquot.scheduler.preemption",
            "io.aliquot.scheduler.recovery"
        },
        excludeFilters = @Filter(type = FilterType.REGEX, pattern = ".*(Test\\$|Program|Benchmark).*"))
@Import({
    RandomPorts.class,
    LedgerConfiguration.class,
    IdentityFilter.class,
    FrontProxyKeeper.class,
    LeaderProxy.class,
    DocumentsController.class,
    GpuNodes.class,
    GpuNodeResource.class,
    GpuResource.class,
    GpuShares.class,
    GpuQuotas.class,
    PendingReasons.class,
    Watches.class,
    ObjectsController.class
})
class ApiScaleProgram {
    static final int GPUS = 8;
    static final String CLIENT = "front-proxy-client";
    /** A label of each new pod: microseconds since 1970 at its allocation. */
    static final String ALLOCATED = "allocated-at";

    private static final int MEMORY = 81_920;
    private static final int NAMESPACES = 50;
    /** Short-lived pods that exist at a time. */
    private static final int CHURNING = 50;

    /** Arguments: the PEM file of the front proxy's CA, nodes, shares. Prints the ports when it is filled. */
    public static void main(String[] arguments) throws Exception {
        ConfigurableApplicationContext context = start();
        var servers = new Authority("kubernetes");
        ExtensionApiProgram.serve(
                context, servers.issue("localhost", KeyPurposeId.id_kp_serverAuth, Duration.ofDays(1)));
        context.getBean(FakeControlPlane.class).authentication =
                FakeControlPlane.of(Files.readString(Path.of(arguments[0])), "[\"" + CLIENT + "\"]", servers.pem());
        context.getBean(FrontProxyKeeper.class).read();
        Changes changes = fill(context, Integer.parseInt(arguments[1]), Integer.parseInt(arguments[2]));
        answer(RandomPorts.webhooks(context) + " " + RandomPorts.extender(context));
        Thread.ofPlatform().name("pods").daemon().start(changes);
        obey(changes);
        context.close();
    }

    /** Without nodes and pods, and without a certificate. */
    static ConfigurableApplicationContext start() {
        return new SpringApplicationBuilder(ApiScaleProgram.class)
                .properties(
                        "POD_NAME=aliquot-1",
                        "POD_NAMESPACE=aliquot",
                        "ALIQUOT_API_GROUP_SERVICE=aliquot-extension-api",
                        "logging.level.root=WARN")
                .run();
    }

    static Changes fill(ConfigurableApplicationContext context, int nodes, int shares) {
        var changes = new Changes(context, nodes);
        changes.fill(shares);
        return changes;
    }

    private static void obey(Changes changes) throws IOException {
        var commands = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = commands.readLine(); line != null && !line.equals("exit"); line = commands.readLine()) {
            if (line.startsWith("rate ")) {
                changes.rate = Integer.parseInt(line.substring("rate ".length()));
                answer("done");
            } else {
                System.gc();
                answer(Long.toString(
                        ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed() >> 20));
            }
        }
    }

    private static void answer(String text) {
        System.out.println("> " + text);
    }

    @Bean
    FakeCluster cluster() {
        return new FakeCluster();
    }

    @Bean
    FakeControlPlane controlPlane() {
        return new FakeControlPlane();
    }

    /** Each container and GPU has figures. */
    @Bean
    UsageLookup usage() {
        var ofContainer = Optional.of(new ShareUsage(1234L, 17, 3, 0, 1, 0L, 0.0, "2026-01-01T00:00:00Z"));
        var ofGpu = Optional.of(new GpuUsage(23_456L, 0L, 78, 55, 300));
        return new UsageLookup() {
            @Override
            public void refresh(Collection<String> nodes) {}

            @Override
            public Optional<ShareUsage> ofContainer(String node, PodId pod, String container, String gpu) {
                return ofContainer;
            }

            @Override
            public Optional<GpuUsage> ofGpu(String node, String gpu) {
                return ofGpu;
            }

            @Override
            public Optional<UsageHistory> history(String node, String gpu) {
                return Optional.empty();
            }
        };
    }

    /** What the watches on pods and nodes report. */
    static final class Changes implements Runnable {
        private final Ledger ledger;
        private final GpuShares shares;
        private final GpuNodes nodes;
        private final int nodeCount;
        private final Clock clock = Clock.systemUTC();
        private final Queue<Churning> churning = new ArrayDeque<>();
        private long version = 100;
        private int pods;
        private volatile int rate;

        private record Churning(PodId id, int node, Map<String, String> labels, ContainerShare held) {}

        private Changes(ConfigurableApplicationContext context, int nodeCount) {
            this.ledger = context.getBean(Ledger.class);
            this.shares = context.getBean(GpuShares.class);
            this.nodes = context.getBean(GpuNodes.class);
            this.nodeCount = nodeCount;
        }

        void fill(int count) {
            for (int node = 0; node < nodeCount; node++) {
                var gpus = new Gpu[GPUS];
                for (int gpu = 0; gpu < GPUS; gpu++) {
                    gpus[gpu] = Gpus.gpu(node, gpu, MEMORY);
                }
                ledger.putNode(
                        name(node),
                        new NodeFacts.Sharing(
                                Gpus.inventory(10, gpus), Placement.BINPACK, new HostResources(128_000, 1L << 40)));
                nodes.put(new NodeMetadata(
                        name(node),
                        "uid-" + name(node),
                        ++version,
                        Instant.EPOCH.plusSeconds(node),
                        Map.of("kubernetes.io/hostname", name(node), "kubernetes.io/arch", "amd64"),
                        List.of()));
            }
            for (int i = 0; i < count; i++) {
                report(next(), ++version, true);
            }
            shares.listed(version);
            nodes.listed(version);
        }

        private Churning next() {
            int pod = pods++;
            int node = pod % nodeCount;
            return new Churning(
                    new PodId(
                            "team-" + pod % NAMESPACES, "train-" + pod, "5b0f3a52-6c1e-4a55-9d43-%012x".formatted(pod)),
                    node,
                    Map.of("app", "train", ALLOCATED, Long.toString(micros())),
                    BoundPods.main(
                            Gpus.uuid(node, pod / nodeCount % GPUS),
                            new GpuAmount(1000 + pod * 7L % 6 * 1000, pod % 8, 1, false)));
        }

        private long micros() {
            Instant now = clock.instant();
            return now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
        }

        static String name(int node) {
            return "gpu-node-%05d".formatted(node);
        }

        private void report(Churning pod, long at, boolean bound) {
            if (bound) {
                ledger.observeBound(BoundPods.of(pod.id(), name(pod.node()), at, pod.held()));
            }
            shares.put(new GpuPod(
                    pod.id(),
                    at,
                    Instant.EPOCH.plusSeconds(at),
                    pod.labels(),
                    bound ? name(pod.node()) : "",
                    false,
                    0,
                    true,
                    "",
                    List.of(),
                    new ParsedRequest.Valid(Gpus.request("APP:main: gpumem=15000")),
                    bound ? List.of(pod.held()) : List.of()));
            nodes.reached(at);
        }

        /** Each pod causes the events of a real one: created, bound, running twice, terminating, gone. */
        @Override
        public void run() {
            long due = System.nanoTime();
            while (true) {
                int now = rate;
                if (now == 0) {
                    LockSupport.parkNanos(Duration.ofMillis(10).toNanos());
                    due = System.nanoTime();
                    continue;
                }
                due += Duration.ofSeconds(1).toNanos() / now;
                LockSupport.parkNanos(due - System.nanoTime());
                Churning pod = next();
                report(pod, ++version, false);
                report(pod, ++version, true);
                report(pod, ++version, true);
                report(pod, ++version, true);
                churning.add(pod);
                if (churning.size() > CHURNING) {
                    Churning old = churning.remove();
                    report(old, ++version, true);
                    ledger.observeEnded(old.id().uid());
                    shares.remove(old.id(), OptionalLong.of(++version));
                    nodes.reached(version);
                }
            }
        }
    }
}
