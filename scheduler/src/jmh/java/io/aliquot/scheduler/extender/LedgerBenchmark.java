package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.Commitment;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.ledger.Quota;
import io.aliquot.scheduler.ledger.QuotaResource;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.List;
import java.util.Map;
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

/** What an event of the watch costs the ledger, and what a Binding does. */
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

    private static final PodId FREE = new PodId("free", "pod", "uid-free");
    private static final PodId LIMITED = new PodId("limited", "pod", "uid-limited");
    private static final PodGpuRequest REQUEST = Gpus.request("APP:main: gpumem=1000 gpucores=1");

    private Fleet fleet;
    private BoundPod[] pods;
    private int next;
    private long version = 1;

    @Setup
    public void fill() {
        fleet = new Fleet(NODES, shares);
        pods = new BoundPod[PODS];
        for (int i = 0; i < PODS; i++) {
            pods[i] = fleet.share("pod-" + i, i % NODES, i % 8);
        }
        fleet.ledger.putQuota(new Quota(
                "limited",
                "gpus",
                "uid",
                Map.of(QuotaResource.MEMORY, 20_000L, QuotaResource.CORES, 150L, QuotaResource.VGPUS, 4L),
                List.of()));
        for (String namespace : List.of("free", "limited")) { // neither has the pod below as its only one
            fleet.ledger.commit(new PodId(namespace, "other", "uid-other-" + namespace), Fleet.name(1), REQUEST, 1);
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

    /** A pod is granted GPUs of a node, and its Binding is refused: in a namespace without a quota. */
    @Benchmark
    public Commitment podIsAssumedAndReleased() {
        return assumeAndRelease(FREE);
    }

    /** The same in a namespace with a quota of memory, cores and vGPUs. */
    @Benchmark
    public Commitment podIsAssumedAndReleasedUnderAQuota() {
        return assumeAndRelease(LIMITED);
    }

    private Commitment assumeAndRelease(PodId pod) {
        version++;
        Commitment granted = fleet.ledger.commit(pod, Fleet.name(0), REQUEST, version);
        fleet.ledger.release(pod.uid(), version);
        return granted;
    }

    /** A pod's status has changed, which most events are about. */
    @Benchmark
    public void podIsTheSame() {
        fleet.ledger.observeBound(pods[0]);
    }
}
