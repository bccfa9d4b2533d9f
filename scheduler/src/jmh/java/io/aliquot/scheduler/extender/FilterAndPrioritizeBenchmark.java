package io.aliquot.scheduler.extender;

import com.sun.management.ThreadMXBean;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.extender.Wire.FilterResult;
import io.aliquot.scheduler.extender.Wire.HostPriority;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/**
 * What kube-scheduler waits for at each pod, without JSON: Filter over all nodes, then Prioritize of those it answered.
 * Each call is another pod, which is given its GPUs, and an older one ends, so that some nodes have changed at the next
 * call and the fleet stays as full as it was.
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.SampleTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
@Warmup(iterations = 5, time = 2)
@Measurement(iterations = 5, time = 4)
@Fork(value = 1, jvmArgsAppend = "-Xmx512m")
@SuppressWarnings("NullAway.Init") // JMH calls the set-up first
public class FilterAndPrioritizeBenchmark {
    private static final int KINDS = 4;
    /** Pods between two changes of the mix, and how many come unseen to change it by more than a tenth. */
    private static final int PODS_BETWEEN_DRIFTS = 128;

    private static final int PODS_OF_DRIFT = 1_500;

    @Param("5000")
    private int nodes;

    @Param({"5000", "50000"})
    private int shares;

    @Param({"BINPACK", "FRAGMENTATION"})
    private Placement placement;

    private Fleet fleet;
    private Wire.Pod[] pods;
    /** What Bind finds remembered. */
    private PodGpuRequest[] asks;

    private Wire.Pod giant;
    private int next;
    private int drifts;
    /** On a busy machine other programs' turns on the cores are most of the time that passes; these leave them out. */
    private final ThreadMXBean clock = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    private final long[] cpuNanos = new long[1 << 20];
    /** Without what the commit makes, which JMH counts, too. */
    private final long[] allocated = new long[1 << 20];

    private FilterResult result;
    private List<HostPriority> priorities;

    private int calls;

    @TearDown(Level.Iteration)
    public void tellCpuTime() {
        int count = Math.min(calls, cpuNanos.length);
        if (count > 0) {
            Arrays.sort(cpuNanos, 0, count);
            Arrays.sort(allocated, 0, count);
            System.out.printf(
                    "(CPU time of %d calls: p50 %d us, p99 %d us, p99.9 %d us, most %d us; bytes allocated by each: p50 %d, p99 %d, %d of them the "
                            + "answers) ",
                    count,
                    cpuNanos[count / 2] / 1000,
                    cpuNanos[(int) (count * 0.99)] / 1000,
                    cpuNanos[(int) (count * 0.999)] / 1000,
                    cpuNanos[count - 1] / 1000,
                    allocated[count / 2],
                    allocated[(int) (count * 0.99)],
                    bytesOfAnswers());
        }
        calls = 0;
    }

    @Setup
    public void fill() {
        fleet = new Fleet(nodes, shares, placement);
        pods = new Wire.Pod[10_000];
        asks = new PodGpuRequest[KINDS];
        for (int i = 0; i < pods.length; i++) {
            pods[i] = ExtenderFixture.pod("pod-" + i, ExtenderFixture.mebibytes(2000 + 500 * (i % KINDS)));
            asks[i % KINDS] = pods[i].template().request();
        }
        giant = ExtenderFixture.pod("giant", "\"aliquot.io/vgpu\": \"8\"");
    }

    /** A pod of a kind that was seen before, on nodes nearly all of which it fits on. */
    @Benchmark
    public List<HostPriority> placed() {
        PodGpuRequest ask = asks[next % KINDS];
        Wire.Pod pod = pods[next++ % pods.length];
        long before = clock.getCurrentThreadAllocatedBytes();
        long start = clock.getCurrentThreadCpuTime();
        result = fleet.filterAndPrioritize.filter(pod, fleet.names);
        priorities = fleet.filterAndPrioritize.prioritize(pod, result.nodeNames());
        cpuNanos[calls % cpuNanos.length] = clock.getCurrentThreadCpuTime() - start;
        allocated[calls++ % allocated.length] = clock.getCurrentThreadAllocatedBytes() - before;
        fleet.ledger.commit(pod.id(), priorities.get(0).host(), ask, 1);
        fleet.ledger.observeEnded(pods[(next + pods.length / 2) % pods.length].id().uid());
        return priorities;
    }

    /** The same, where every {@value #PODS_BETWEEN_DRIFTS}th finds that what pods ask for has changed. */
    @Benchmark
    public List<HostPriority> drifting() {
        if (next % PODS_BETWEEN_DRIFTS == 0) {
            int kind = drifts++ % 2;
            PodGpuRequest ask = ExtenderFixture.pod("unseen", ExtenderFixture.mebibytes(3000 + 9000 * kind))
                    .template()
                    .request();
            for (int i = 0; i < PODS_OF_DRIFT; i++) {
                fleet.scoring.observe("unseen-" + drifts + "-" + i, ask);
            }
        }
        return placed();
    }

    /** What the last call's answers take: what copies of them do. */
    private long bytesOfAnswers() {
        long before = clock.getCurrentThreadAllocatedBytes();
        var copy = new ArrayList<HostPriority>(priorities.size());
        for (int i = 0; i < priorities.size(); i++) {
            copy.add(new HostPriority(priorities.get(i).host(), priorities.get(i).score()));
        }
        result = new FilterResult(
                Arrays.asList(result.nodeNames().toArray(new String[0])),
                new HashMap<>(result.failedNodes()),
                new HashMap<>(result.failedAndUnresolvableNodes()),
                result.error());
        priorities = copy;
        return clock.getCurrentThreadAllocatedBytes() - before;
    }

    /** A pod that fits nowhere: the answer names every node. */
    @Benchmark
    public FilterResult refused() {
        return fleet.filterAndPrioritize.filter(giant, fleet.names);
    }

    /** A pod of a kind never seen before: every node has to look. */
    @Benchmark
    public FilterResult ofNewKind() {
        Wire.Pod pod = ExtenderFixture.pod("new", ExtenderFixture.mebibytes(1000 + next++ % 20_000));
        return fleet.filterAndPrioritize.filter(pod, fleet.names);
    }
}
