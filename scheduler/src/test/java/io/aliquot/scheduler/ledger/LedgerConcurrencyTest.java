package io.aliquot.scheduler.ledger;

import static io.aliquot.scheduler.placement.Gpus.gpu;
import static io.aliquot.scheduler.placement.Gpus.request;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.usage.UsageReport;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.scoring.NodeScoring;
import io.aliquot.scheduler.scoring.fragmentation.Fragmentation;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Queue;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

/**
 * Threads place, resize and end the same pods at once, while another thread reports the changes to the ledger in order, as
 * a watch does. What a pod holds is checked at the API server.
 */
class LedgerConcurrencyTest {
    private static final PodGpuRequest REQUEST =
            request(Map.of("aliquot.io/gpu-placement", "fragmentation"), "APP:main: gpumem=300 gpucores=10");
    private static final NodeFacts[] NODES = {
        LedgerTest.sharing(10, gpu(0, 0, 1000), gpu(0, 1, 1000)),
        LedgerTest.sharing(10, gpu(1, 0, 1000), gpu(1, 1, 1000))
    };
    private static final int THREADS = 4;
    private static final int STEPS = 20_000;
    private static final int PODS = 40;

    private final AtomicLong clock = new AtomicLong();
    private final Ledger ledger = new Ledger(clock::get, new LedgerListener() {
        @Override
        public void capacityFreed(String node) {}

        /** May be called for a pod that was read from the API server, not from the watch, and is gone. */
        @Override
        public void overallocated(String node, String gpu) {}
    });
    private final Server server = new Server();

    LedgerConcurrencyTest() {
        new NodeScoring(ledger, new Fragmentation()); // chooses the GPUs
    }

    /** The API server: the pods, and the reports that the watch has not delivered yet. */
    private final class Server {
        private final Pod[] pods = new Pod[PODS];
        private final Queue<Runnable> reports = new ConcurrentLinkedQueue<>();
        private long version;

        record Pod(PodId id, long version, Optional<BoundPod> bound) {}

        Server() {
            for (int place = 0; place < PODS; place++) {
                replace(place);
            }
        }

        private void replace(int place) {
            version++;
            pods[place] = new Pod(LedgerTest.pod("p" + place + "-" + version), version, Optional.empty());
        }

        synchronized Pod read(int place) {
            return pods[place];
        }

        synchronized Optional<Pod> read(PodId id) {
            return List.of(pods).stream().filter(pod -> pod.id().equals(id)).findFirst();
        }

        /** A Binding or a resize; takes effect, and returns true, only if the pod still has this version. */
        synchronized boolean write(int place, Pod before, String node, List<ContainerShare> shares) {
            if (pods[place].version() != before.version()) {
                return false;
            }
            version++;
            BoundPod bound = BoundPods.of(before.id(), node, version, shares.toArray(new ContainerShare[0]));
            pods[place] = new Pod(before.id(), version, Optional.of(bound));
            reports.add(() -> ledger.observeBound(bound));
            expectNoDoubleAllocation();
            return true;
        }

        /** A change of the pod that does not affect the ledger. */
        synchronized void touch(int place, Pod before) {
            if (pods[place].version() != before.version()) {
                return;
            }
            if (before.bound().isPresent()) {
                BoundPod bound = before.bound().get();
                write(place, before, bound.node(), bound.shares());
            } else {
                version++;
                Pod after = new Pod(before.id(), version, Optional.empty());
                pods[place] = after;
                reports.add(() -> ledger.observeUnbound(after.id().uid(), after.version()));
            }
        }

        /** The pod ends and is deleted, or is deleted by force, and another one replaces it. */
        synchronized void end(int place, boolean byForce) {
            String uid = pods[place].id().uid();
            replace(place);
            reports.add(byForce ? () -> ledger.deletedBeforeEnd(uid) : () -> ledger.observeEnded(uid));
        }

        private void expectNoDoubleAllocation() {
            var memory = new HashMap<String, Integer>();
            for (Pod pod : pods) {
                pod.bound().stream()
                        .flatMap(bound -> bound.shares().stream())
                        .flatMap(share -> share.vgpus().list().stream())
                        .forEach(vgpu -> memory.merge(vgpu.uuid(), vgpu.memoryMiB(), Integer::sum));
            }
            assertThat(memory.values()).allMatch(sum -> sum <= 1000);
        }

        /** Delivers the next report of the watch; returns whether there was one. */
        boolean report() {
            Runnable next = reports.poll();
            if (next != null) {
                next.run();
            }
            return next != null;
        }
    }

    @Test
    void concurrentChangesNeverOverallocateAGpuAndLeaveNoClaim() throws Exception {
        putNodes();
        List<Callable<Integer>> workers = new ArrayList<>();
        for (int thread = 0; thread < THREADS; thread++) {
            long seed = Long.getLong("aliquot.seed", System.nanoTime()) + thread;
            workers.add(() -> work(new Random(seed)));
        }
        var pool = Executors.newFixedThreadPool(THREADS + 1);
        int bound = 0;
        try {
            Future<?> watch = pool.submit(this::watch);
            for (Future<Integer> worker : pool.invokeAll(workers)) {
                bound += worker.get();
            }
            watch.cancel(true);
        } finally {
            pool.shutdownNow();
            assertThat(pool.awaitTermination(1, TimeUnit.MINUTES)).isTrue();
        }
        assertThat(bound).isGreaterThan(PODS);

        putNodes();
        catchUp();
        settleAll();
        catchUp();
        assertThat(ledger.assumedFor(Duration.ZERO)).isEmpty();
        for (int place = 0; place < PODS; place++) {
            server.end(place, false);
        }
        catchUp();
        clock.addAndGet(Duration.ofMinutes(10).toNanos());
        ledger.expire();
        for (int i = 0; i < 3; i++) {
            clock.addAndGet(Duration.ofSeconds(15).toNanos());
            agentsReport();
        }
        LedgerInvariants.recount(ledger);
        assertThat(LedgerInvariants.unconfirmed(ledger)).isEmpty();
        assertThat(LedgerInvariants.taken(ledger).values()).containsOnly(GpuAmount.NOTHING);
    }

    private void putNodes() {
        for (int node = 0; node < NODES.length; node++) {
            ledger.putNode("n" + node, NODES[node]);
        }
    }

    /** No process of any pod runs any more. */
    private void agentsReport() {
        for (int node = 0; node < NODES.length; node++) {
            ledger.observe(
                    new UsageReport(Instant.EPOCH, "n" + node, List.of(), List.of(), List.of())
                            .withPods(Optional.of(Set.of())),
                    clock.get());
        }
    }

    private void watch() {
        while (!Thread.currentThread().isInterrupted()) {
            if (!server.report()) {
                Thread.onSpinWait();
            }
        }
    }

    private void catchUp() {
        while (server.report()) {}
    }

    /** Returns how many Bindings took effect. */
    private int work(Random random) {
        int bound = 0;
        for (int step = 0; step < STEPS; step++) {
            int place = random.nextInt(PODS);
            int node = random.nextInt(NODES.length);
            Server.Pod pod = server.read(place);
            switch (random.nextInt(16)) {
                case 0 -> {
                    ledger.expire();
                    agentsReport();
                    LedgerInvariants.recount(ledger);
                }
                case 1 -> clock.addAndGet(Duration.ofMillis(random.nextInt(500)).toNanos());
                case 2 -> server.touch(place, pod);
                case 3 -> server.end(place, random.nextInt(4) == 0);
                case 4 -> settleAll();
                case 5 -> ledger.putNode("n" + node, NODES[node]);
                case 6 -> ledger.setAgentReady("n" + node, random.nextInt(4) != 0);
                case 7, 8, 9 -> resize(place, pod, random);
                case 10, 11 -> ledger.reserve(pod.id(), "n" + node, REQUEST);
                default -> bound += bind(place, pod, "n" + node, random) ? 1 : 0;
            }
        }
        return bound;
    }

    private boolean bind(int place, Server.Pod pod, String node, Random random) {
        if (pod.bound().isPresent()
                || !(ledger.commit(pod.id(), node, REQUEST, pod.version()) instanceof Granted granted)) {
            return false;
        }
        List<ContainerShare> shares = granted.containers().entrySet().stream()
                .map(container -> new ContainerShare(container.getKey(), ContainerKind.APP, container.getValue()))
                .toList();
        boolean done = random.nextInt(8) != 0 && server.write(place, pod, node, shares);
        if (!done && random.nextInt(8) != 0) { // else the answer is lost
            ledger.release(pod.id().uid(), pod.version());
        }
        return done;
    }

    private void resize(int place, Server.Pod pod, Random random) {
        if (pod.bound().isEmpty()) {
            return;
        }
        var change = new ContainerShareChange("main", 100 + random.nextInt(5) * 100, null, null);
        // Prepared for the version that the ledger knows, which may be older or newer.
        if (ledger.resize(pod.id().uid(), List.of(change)) instanceof Resizing.Prepared prepared) {
            boolean done = random.nextInt(8) != 0
                    && prepared.version() == pod.version()
                    && server.write(place, pod, prepared.node(), prepared.shares());
            if (!done && random.nextInt(8) != 0) { // else the answer is lost
                ledger.rollbackResize(pod.id().uid(), prepared.version());
            }
        }
    }

    /** Resolves writes whose answer was lost. Others may be in flight, so each pod gets a new version first. */
    private void settleAll() {
        for (PodId id : ledger.assumedFor(Duration.ZERO)) {
            OptionalLong base = ledger.unresolvedBase(id.uid());
            for (int place = 0; place < PODS; place++) {
                Server.Pod pod = server.read(place);
                if (pod.id().equals(id) && base.equals(OptionalLong.of(pod.version()))) {
                    server.touch(place, pod);
                }
            }
            Optional<Server.Pod> now = server.read(id);
            if (now.isEmpty()) {
                ledger.discardAssumed(id.uid());
            } else if (now.get().bound().isPresent()) {
                ledger.assume(now.get().bound().get());
            } else {
                ledger.observeUnbound(id.uid(), now.get().version());
            }
        }
    }
}
