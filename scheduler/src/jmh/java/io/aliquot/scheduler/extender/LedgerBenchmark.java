package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.ledger.BoundPod;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

/** What an event of the watch costs the ledger. */
@State(Scope.Thread)
@BenchmarkMode(Mode.SampleTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 3, time = 2)
@Measurement(iterations = 5, time = 2)
@Fork(1)
@SuppressWarnings("NullAway.Init") // JMH calls the set-up first
public class LedgerBenchmark {
    private static final int PODS = 10_000;
    private static final int NODES = 5000;

    @Param({"5000", "50000"})
    private int shares;

    private Fleet fleet;
    private BoundPod[] pods;
    private int next;

    @Setup
    public void fill() {
        fleet = new Fleet(NODES, shares);
        pods = new BoundPod[PODS];
        for (int i = 0; i < PODS; i++) {
            pods[i] = fleet.share("pod-" + i, i % NODES, i % 8);
        }
    }

    /** One pod is new, another one ends: two events. */
    @Benchmark
    @OperationsPerInvocation(2)
    public void podComesAndPodGoes() {
        int i = next++ % PODS;
        fleet.ledger.observeBound(pods[i]);
        fleet.ledger.observeEnded(pods[(i + PODS / 2) % PODS].id().uid());
        if (i == 0) {
            fleet.events.takeFreed();
        }
    }

    /** A pod's status has changed, which most events are about. */
    @Benchmark
    public void podIsTheSame() {
        fleet.ledger.observeBound(pods[0]);
    }
}
