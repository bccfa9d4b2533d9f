package io.aliquot.scheduler.ledger;

import static io.aliquot.scheduler.placement.Gpus.ask;
import static io.aliquot.scheduler.placement.Gpus.gpu;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Gpu;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.placement.Amount;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.PodAsk;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

/**
 * Random histories of a small cluster: what is bound there is the truth, the ledger hears of it late, twice, or only by
 * a list after a lost watch, and outcomes of binds may stay unknown. However it goes, the truth never exceeds a GPU,
 * and once all is told the ledger says exactly the truth. {@code -Daliquot.seed} repeats a failure, {@code
 * -Daliquot.histories} asks for more.
 */
class LedgerModelTest {
    private static final int NODES = 3;
    private static final int GPUS = 2;
    private static final int MEMORY = 1000;
    private static final int MOST_SLOTS = 5;
    private static final int STEPS = 1000;
    private static final Duration DOUBT = Duration.ofSeconds(65);
    private static final List<PodAsk> ASKS = List.of(
            ask("APP:main: gpumem=100"),
            ask("APP:main: gpumem=400 gpucores=40"),
            ask("APP:main: gpu=2 gpumem=300"),
            ask("APP:main: gpu=1"),
            ask("APP:main: gpumem-percentage=70"),
            ask("INIT:warm: gpumem=600", "SIDECAR:side: gpumem=100", "APP:main: gpu=2 gpumem=250 gpucores=10"),
            ask("APP:a: gpumem=500", "APP:b: gpumem=300 gpucores=60"));

    private record Pod(PodId id, PodAsk ask) {}

    @Test
    void noHistoryOversellsAGpuOrLeaksAReservation() {
        long first = Long.getLong("aliquot.seed", System.nanoTime());
        int histories = Integer.getInteger("aliquot.histories", 300);
        for (int i = 0; i < histories; i++) {
            long seed = first + i;
            try {
                new History(new Random(seed)).run();
            } catch (RuntimeException | AssertionError e) {
                throw new AssertionError("with -Daliquot.seed=" + seed, e);
            }
        }
    }

    private static final class History implements LedgerListener {
        private final Random random;
        private final AtomicLong now = new AtomicLong();
        private final Ledger ledger = new Ledger(now::get, this);
        private final Map<String, Pod> pending = new LinkedHashMap<>();
        /** The truth: bound and not ended. */
        private final Map<String, BoundPod> bound = new LinkedHashMap<>();
        /** What a watch still has to tell, in order. */
        private final Deque<Runnable> untold = new ArrayDeque<>();
        /** Bindings on their way, which the server may still carry out. */
        private final Map<String, BoundPod> inFlight = new LinkedHashMap<>();
        /** Pods that the watcher knows of, as a list after a lost watch compares with. */
        private final Set<String> known = new HashSet<>();

        private int created;

        History(Random random) {
            this.random = random;
        }

        void run() {
            for (int node = 0; node < NODES; node++) {
                changeNode(node);
            }
            for (int step = 0; step < STEPS; step++) {
                step();
                checkTruth();
            }
            settle();
            checkAgreement();
            new ArrayList<>(bound.keySet()).forEach(this::end);
            settle();
            assertThat(ledger.report())
                    .allSatisfy(gpu -> assertThat(gpu.taken()).isEqualTo(Amount.NOTHING));
            assertThat(ledger.reservations()).isZero();
        }

        private void step() {
            switch (random.nextInt(14)) {
                case 0, 1, 2 -> create();
                case 3, 4 -> pick(pending.values()).forEach(this::filter);
                case 5, 6, 7 -> pick(pending.values()).forEach(this::bind);
                case 8 -> pick(bound.keySet()).forEach(this::end);
                case 9 -> pick(pending.values()).forEach(this::delete);
                case 10, 11 -> tell();
                case 12 -> {
                    if (random.nextInt(5) == 0) {
                        loseWatch();
                    } else {
                        carryOut();
                    }
                }
                default -> {
                    if (random.nextInt(4) == 0) {
                        changeNode(random.nextInt(NODES));
                    }
                    pass(Duration.ofMillis(random.nextInt(8000)));
                }
            }
        }

        private void create() {
            String name = "p" + created++;
            pending.put(name, new Pod(LedgerTest.pod(name), ASKS.get(random.nextInt(ASKS.size()))));
        }

        private void filter(Pod pod) {
            String node = node(random.nextInt(NODES));
            if (ledger.ask(node, pod.id().uid(), pod.ask()) instanceof Offer.Fits) {
                ledger.expect(pod.id(), node, pod.ask());
            }
        }

        private void bind(Pod pod) {
            String node = node(random.nextInt(NODES));
            String uid = pod.id().uid();
            if (!(ledger.commit(pod.id(), node, pod.ask()) instanceof Granted granted)) {
                return;
            }
            var binding = bound(pod, node, granted);
            switch (random.nextInt(4)) {
                case 0 -> inFlight.put(uid, binding); // no answer; perhaps carried out later
                case 1 -> {
                    if (!inFlight.containsKey(uid)) {
                        ledger.release(uid); // refused for certain
                    }
                }
                default -> apply(binding);
            }
        }

        private void apply(BoundPod binding) {
            String uid = binding.id().uid();
            inFlight.remove(uid);
            if (pending.remove(uid) != null) {
                bound.put(uid, binding);
                untold.add(() -> {
                    known.add(uid);
                    ledger.hold(binding);
                });
            }
        }

        private void carryOut() {
            pick(inFlight.values()).forEach(this::apply);
        }

        private void end(String uid) {
            bound.remove(uid);
            untold.add(() -> {
                known.remove(uid);
                ledger.forget(uid);
            });
        }

        private void delete(Pod pod) {
            String uid = pod.id().uid();
            pending.remove(uid);
            inFlight.remove(uid);
            untold.add(() -> ledger.forget(uid));
        }

        private void tell() {
            Runnable next = untold.poll();
            if (next != null) {
                next.run();
                if (random.nextInt(3) == 0) {
                    next.run();
                }
            }
        }

        /** The watch breaks: what it had to tell is lost, and a list tells what is there. */
        private void loseWatch() {
            untold.clear();
            for (String uid : List.copyOf(known)) {
                if (!bound.containsKey(uid)) {
                    known.remove(uid);
                    ledger.forget(uid);
                }
            }
            bound.forEach((uid, pod) -> {
                known.add(uid);
                ledger.hold(pod);
            });
        }

        private void pass(Duration time) {
            now.addAndGet(time.toNanos());
            ledger.expire();
            for (PodId pod : ledger.unsettledSince(DOUBT)) {
                inFlight.remove(pod.uid()); // by now the server has given up on it
                if (!bound.containsKey(pod.uid())) {
                    ledger.release(pod.uid());
                }
            }
        }

        private void changeNode(int number) {
            if (random.nextInt(10) == 0) {
                ledger.removeNode(node(number));
                return;
            }
            var gpus = new ArrayList<Gpu>();
            for (int i = 0; i < GPUS; i++) {
                if (random.nextInt(8) > 0) {
                    gpus.add(gpu(number, i, MEMORY, random.nextInt(8) > 0));
                }
            }
            int slots = 1 + random.nextInt(MOST_SLOTS);
            ledger.putNode(node(number), LedgerTest.sharing(slots, gpus.toArray(Gpu[]::new)));
        }

        private void settle() {
            inFlight.clear();
            loseWatch();
            pass(DOUBT.plusSeconds(1));
            for (int node = 0; node < NODES; node++) {
                Gpu[] gpus = {gpu(node, 0, MEMORY), gpu(node, 1, MEMORY)};
                ledger.putNode(node(node), LedgerTest.sharing(MOST_SLOTS, gpus));
            }
        }

        private void checkTruth() {
            sums().forEach((gpu, sum) -> {
                assertThat(sum[0]).as("memory of " + gpu).isLessThanOrEqualTo(MEMORY);
                assertThat(sum[1]).as("cores of " + gpu).isLessThanOrEqualTo(100);
                assertThat(sum[2]).as("slots of " + gpu).isLessThanOrEqualTo(MOST_SLOTS);
                assertThat(sum[3] > 0 && sum[4] > 1)
                        .as("a whole card and others on " + gpu)
                        .isFalse();
            });
        }

        private void checkAgreement() {
            Map<String, long[]> sums = sums();
            for (GpuReport report : ledger.report()) {
                long[] sum = sums.getOrDefault(report.gpu().uuid(), new long[5]);
                assertThat(report.taken()).isEqualTo(new Amount(sum[0], (int) sum[1], (int) sum[2], sum[3] > 0));
            }
            assertThat(ledger.reservations()).isZero();
        }

        /** Per GPU: memory, cores, slots, whole cards, pods. */
        private Map<String, long[]> sums() {
            var sums = new HashMap<String, long[]>();
            bound.values()
                    .forEach(pod -> pod.perGpu().forEach((gpu, amount) -> {
                        long[] sum = sums.computeIfAbsent(gpu, any -> new long[5]);
                        sum[0] += amount.memoryMiB();
                        sum[1] += amount.cores();
                        sum[2] += amount.slots();
                        sum[3] += amount.exclusive() ? 1 : 0;
                        sum[4]++;
                    }));
            return sums;
        }

        private <T> List<T> pick(Collection<T> from) {
            return from.stream()
                    .skip(from.isEmpty() ? 0 : random.nextInt(from.size()))
                    .limit(1)
                    .toList();
        }

        private static String node(int number) {
            return "n" + number;
        }

        private static BoundPod bound(Pod pod, String node, Granted granted) {
            return BoundPods.of(
                    pod.id(),
                    node,
                    1,
                    pod.ask().containers().stream()
                            .map(container -> new Share(
                                    container.name(),
                                    container.kind(),
                                    Gpus.of(granted.containers(), container.name())))
                            .toArray(Share[]::new));
        }

        @Override
        public void roomFreed(String node) {}

        @Override
        public void oversold(String node, String gpu, PodId latest, Set<PodId> holders) {
            // A watch that lags behind a reading can make it look so, when one of the holders has ended since.
            assertThat(holders).as("holders of " + gpu).anyMatch(pod -> !bound.containsKey(pod.uid()));
        }
    }
}
