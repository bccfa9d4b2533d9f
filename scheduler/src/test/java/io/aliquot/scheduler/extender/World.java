package io.aliquot.scheduler.extender;

import io.aliquot.api.Gpu;
import io.aliquot.api.Placement;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.HostLoad;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.Amount;
import io.aliquot.scheduler.placement.Gpus;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;
import tools.jackson.databind.json.JsonMapper;

/** Two nodes with two GPUs of 80000 MiB each, and the verbs around them. */
final class World {
    static final int MEMORY = 80_000;

    final AtomicLong now = new AtomicLong();
    final FakeCluster cluster = new FakeCluster();
    final LedgerNews news = new LedgerNews();
    final Ledger ledger = new Ledger(now::get, news);
    final PendingPods pending = new PendingPods(now::get);
    final Binder binder = new Binder(ledger, cluster, pending);
    final Waker waker = new Waker(ledger, news, pending, cluster, now::get);

    World() {
        node(ledger, 1);
        node(ledger, 2);
        news.takeFreed();
    }

    Placing placing(Placement nodes, int nodesPerFilter) {
        return new Placing(ledger, cluster, pending, nodes, nodesPerFilter);
    }

    static void node(Ledger ledger, int number, Gpu... gpus) {
        Gpu[] those = gpus.length > 0 ? gpus : new Gpu[] {Gpus.gpu(number, 0, MEMORY), Gpus.gpu(number, 1, MEMORY)};
        ledger.putNode(
                "n" + number,
                new NodeFacts.Sharing(Gpus.inventory(10, those), Placement.BINPACK, new HostLoad(1000, 1000)));
    }

    void pass(Duration time) {
        now.addAndGet(time.toNanos());
    }

    void takenElsewhere(String pod, int node, int gpu, int memoryMiB) {
        var amount = new Amount(memoryMiB, 0, 1, false);
        ledger.hold(BoundPods.of(id(pod), "n" + node, 1, BoundPods.main(Gpus.uuid(node, gpu), amount)));
    }

    static PodId id(String name) {
        return new PodId("default", name, "uid-" + name);
    }

    /** As kube-scheduler sends it. */
    static String podJson(String name, String limits, String more) {
        return """
                {"metadata": {"name": "%1$s", "namespace": "default", "uid": "uid-%1$s", "managedFields": [{}]%3$s},
                 "spec": {"schedulerName": "aliquot-scheduler", "containers": [
                   {"name": "main", "image": "x", "resources": {"limits": {%2$s, "cpu": "1"}}}]}, "status": {}}""".formatted(name, limits, more);
    }

    static Wire.Pod pod(String name, String limits) {
        return pod(name, limits, "");
    }

    static Wire.Pod pod(String name, String limits, String more) {
        return JsonMapper.shared().readValue(podJson(name, limits, more), Wire.Pod.class);
    }

    static String mebibytes(int amount) {
        return "\"nvidia.com/gpu\": \"1\", \"nvidia.com/gpumem\": \"" + amount + "\"";
    }
}
