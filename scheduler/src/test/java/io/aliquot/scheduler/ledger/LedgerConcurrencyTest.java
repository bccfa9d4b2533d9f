package io.aliquot.scheduler.ledger;

import static io.aliquot.scheduler.placement.Gpus.ask;
import static io.aliquot.scheduler.placement.Gpus.gpu;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.placement.Amount;
import io.aliquot.scheduler.placement.PodAsk;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class LedgerConcurrencyTest {
    private static final PodAsk ASK =
            ask(Map.of("aliquot.io/gpu-placement", "fragmentation"), "APP:main: gpumem=300 gpucores=10");
    private static final int THREADS = 4;

    private final AtomicInteger oversold = new AtomicInteger();
    private final Ledger ledger = new Ledger(System::nanoTime, new LedgerListener() {
        @Override
        public void roomFreed(String node) {}

        @Override
        public void oversold(String node, String gpu) {
            oversold.incrementAndGet();
        }
    });

    @Test
    void manyThreadsNeverSellAGpuTwiceAndLeaveNothingBehind() throws Exception {
        for (int node = 0; node < 2; node++) {
            ledger.putNode("n" + node, LedgerTest.sharing(10, gpu(node, 0, 1000), gpu(node, 1, 1000)));
        }
        // Pods are shared between threads, so that one pod's steps race with each other too.
        List<Callable<Integer>> workers = new ArrayList<>();
        for (int thread = 0; thread < THREADS; thread++) {
            long seed = Long.getLong("aliquot.seed", System.nanoTime()) + thread;
            workers.add(() -> work(new Random(seed)));
        }
        var pool = Executors.newFixedThreadPool(THREADS);
        try {
            int granted = 0;
            for (Future<Integer> worker : pool.invokeAll(workers)) {
                granted += worker.get();
            }
            assertThat(granted).isPositive();
        } finally {
            pool.shutdownNow();
        }
        for (int pod = 0; pod < 40; pod++) {
            ledger.forget("p" + pod);
        }
        assertThat(oversold).hasValue(0);
        assertThat(Books.unconfirmed(ledger)).isEmpty();
        assertThat(Books.taken(ledger).values()).containsOnly(Amount.NOTHING);
    }

    private int work(Random random) {
        int granted = 0;
        for (int step = 0; step < 20_000; step++) {
            PodId pod = LedgerTest.pod("p" + random.nextInt(40));
            String node = "n" + random.nextInt(2);
            switch (random.nextInt(6)) {
                case 0 -> ledger.expect(pod, node, ASK);
                case 1 -> ledger.unbound(pod.uid(), step + 1);
                case 2 -> ledger.forget(pod.uid());
                case 3 -> ledger.expire();
                default -> granted += ledger.commit(pod, node, ASK, step) instanceof Granted ? 1 : 0;
            }
            for (Amount taken : Books.taken(ledger).values()) {
                assertThat(taken.memoryMiB()).isLessThanOrEqualTo(1000);
            }
        }
        return granted;
    }
}
