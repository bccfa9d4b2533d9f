package io.aliquot.scheduler;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.ToLongFunction;

/** What pods held and quotas allowed, in the order in which the API server stored it. Thread-safe. */
final class QuotaHistory {
    /** The longest of a Binding's write: its timeout and what reads its outcome. */
    private static final long WRITE_NANOS = TimeUnit.SECONDS.toNanos(7);

    /** What pods hold, or may hold, of GPUs. */
    record Amount(long memoryMiB, long cores, long vgpus) {
        static final Amount NONE = new Amount(0, 0, 0);
        static final Amount UNLIMITED = new Amount(Long.MAX_VALUE, Long.MAX_VALUE, Long.MAX_VALUE);
        private static final Map<String, ToLongFunction<Amount>> PARTS =
                Map.of("MiB", Amount::memoryMiB, "cores", Amount::cores, "vGPUs", Amount::vgpus);

        Amount plus(Amount other) {
            return new Amount(memoryMiB + other.memoryMiB, cores + other.cores, vgpus + other.vgpus);
        }

        Amount minus(Amount other) {
            return new Amount(memoryMiB - other.memoryMiB, cores - other.cores, vgpus - other.vgpus);
        }

        Amount max(Amount other) {
            return new Amount(
                    Math.max(memoryMiB, other.memoryMiB), Math.max(cores, other.cores), Math.max(vgpus, other.vgpus));
        }
    }

    /** Something that the API server has stored, in the order of its versions. */
    private sealed interface Change {
        long version();

        /** The pod holds this amount from now on; {@code at}: when the test learned of it, in nanoseconds. */
        record Holds(long version, String namespace, long at, String uid, Amount amount) implements Change {}

        /** The quota allows this amount; {@code at}: the replicas know it. */
        record Allows(long version, String namespace, long at, Amount amount) implements Change {}
    }

    /**
     * What {@link #check} found.
     *
     * @param bound how many pods got something
     * @param withinFormer how often a namespace's sum was within a former quota only
     */
    record Result(int bound, int withinFormer) {}

    private final ConcurrentLinkedQueue<Change> changes = new ConcurrentLinkedQueue<>();
    private final Map<String, Amount> held = new ConcurrentHashMap<>();

    /** The pod holds this amount in this version. */
    void holds(long version, String namespace, String uid, Amount amount) {
        if (!amount.equals(held.getOrDefault(uid, Amount.NONE))) {
            held.put(uid, amount);
            changes.add(new Change.Holds(version, namespace, System.nanoTime(), uid, amount));
        }
    }

    /** The quota of the namespace allows this amount since this version, and the replicas know it by now. */
    void allows(long version, String namespace, Amount amount) {
        changes.add(new Change.Allows(version, namespace, System.nanoTime(), amount));
    }

    /**
     * Replays what the API server has stored: whenever a pod gets more, its namespace's sum is within the quota. A Binding
     * that was on its way when the quota became smaller may be within the former one.
     */
    Result check() {
        var amounts = new HashMap<String, Amount>();
        var sums = new HashMap<String, Amount>();
        var allowed = new HashMap<String, List<Change.Allows>>();
        int bound = 0;
        int explained = 0;
        List<Change> inOrder = changes.stream()
                .sorted(Comparator.comparingLong(Change::version))
                .toList();
        for (Change change : inOrder) {
            switch (change) {
                case Change.Allows quota ->
                    allowed.computeIfAbsent(quota.namespace(), namespace -> new ArrayList<>())
                            .add(quota);
                case Change.Holds pod -> {
                    Amount before = amounts.getOrDefault(pod.uid(), Amount.NONE);
                    amounts.put(pod.uid(), pod.amount());
                    Amount sum = sums.getOrDefault(pod.namespace(), Amount.NONE)
                            .minus(before)
                            .plus(pod.amount());
                    sums.put(pod.namespace(), sum);
                    if (before.equals(Amount.NONE)) {
                        bound++;
                    }
                    if (!within(sum, pod, before, allowed.getOrDefault(pod.namespace(), List.of()))) {
                        explained++;
                    }
                }
            }
        }
        return new Result(bound, explained);
    }

    /** Whether the sum is within the quota of its time; false if only a former quota allows it, which may be. */
    private static boolean within(Amount sum, Change.Holds pod, Amount before, List<Change.Allows> quotas) {
        for (int i = quotas.size() - 1; i >= 0; i--) {
            Amount hard = quotas.get(i).amount();
            boolean exceeds = Amount.PARTS.values().stream()
                    .anyMatch(part -> part.applyAsLong(pod.amount()) > part.applyAsLong(before)
                            && part.applyAsLong(sum) > part.applyAsLong(hard));
            if (!exceeds) {
                return i == quotas.size() - 1;
            }
            assertThat(pod.at() - quotas.get(i).at())
                    .as(
                            "namespace %s holds %s of %s since pod %s holds %s (before: %s)",
                            pod.namespace(), sum, hard, pod.uid(), pod.amount(), before)
                    .isLessThan(WRITE_NANOS);
        }
        return quotas.isEmpty();
    }
}
