package io.aliquot.scheduler.extender;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.cluster.FakeCluster;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerEvents;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.scoring.NodeScoring;
import io.aliquot.scheduler.scoring.fragmentation.Fragmentation;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;

/** A large cluster in memory: nodes of eight GPUs of 80 GiB, and pods that hold shares of them. */
final class Fleet {
    static final int MEMORY = 81_920;
    private static final int GPUS = 8;
    private static final long SEED = 7;
    private static final int NODES_PER_FILTER = 100;

    final LedgerEvents events = new LedgerEvents();
    final Ledger ledger;
    final NodeScoring scoring;
    final FilterAndPrioritize filterAndPrioritize;
    /**
     * Names of all nodes, in the order in which they are asked about; the same list each time, as when they are read.
     */
    final List<String> names;

    private final Random random = new Random(SEED);

    Fleet(int nodes, int shares) {
        this(nodes, shares, Placement.BINPACK);
    }

    /** One whose nodes and GPUs are chosen so. */
    Fleet(int nodes, int shares, Placement placement) {
        ledger = new Ledger(System::nanoTime, events);
        scoring = new NodeScoring(ledger, new Fragmentation());
        filterAndPrioritize = new FilterAndPrioritize(
                ledger, scoring, new FakeCluster(), new PendingPods(System::nanoTime), placement, NODES_PER_FILTER);
        names = fill(nodes, shares, placement);
    }

    /** The same cluster in a ledger that the caller gives. */
    Fleet(Ledger ledger, NodeScoring scoring, FilterAndPrioritize filterAndPrioritize, int nodes, int shares) {
        this.ledger = ledger;
        this.scoring = scoring;
        this.filterAndPrioritize = filterAndPrioritize;
        names = fill(nodes, shares, Placement.BINPACK);
    }

    private List<String> fill(int nodes, int shares, Placement placement) {
        var all = new ArrayList<String>();
        for (int node = 0; node < nodes; node++) {
            var gpus = new Gpu[GPUS];
            for (int gpu = 0; gpu < GPUS; gpu++) {
                gpus[gpu] = Gpus.gpu(node, gpu, MEMORY);
            }
            ledger.putNode(
                    name(node),
                    new NodeFacts.Sharing(
                            Gpus.inventory(10, gpus),
                            placement,
                            new HostResources(128_000, 1L << 40)));
            all.add(name(node));
        }
        for (int pod = 0; pod < shares; pod++) {
            ledger.observeBound(share("share-" + pod, pod % nodes, pod / nodes % GPUS));
        }
        Collections.shuffle(all, random);
        events.takeFreed();
        return List.copyOf(all);
    }

    static String name(int node) {
        return "gpu-node-%05d".formatted(node);
    }

    /** Of different sizes, so that nodes are differently full; ten of the largest leave a tenth of a GPU. */
    BoundPod share(String pod, int node, int gpu) {
        var amount = new GpuAmount(1000 + random.nextInt(6) * 1000L, random.nextInt(8), 1, false);
        return BoundPods.of(ExtenderFixture.id(pod), name(node), 1, BoundPods.main(Gpus.uuid(node, gpu), amount));
    }
}
