package io.aliquot.lab;

import io.aliquot.api.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;

/** Pods that come and go on {@link HollowNodes}, always more of them than there is room for. */
final class PodChurn implements AutoCloseable {
    /** Of some 25 GB on average; a hollow node has 160. */
    private static final int WANTED_PER_NODE = 9;

    private static final long LIVES_MS = 2000;
    private static final int[] MEMORY = {8000, 16000, 24000, 40000, 60000};
    private static final int[] CORES = {0, 0, 20, 40, 60};

    private final TestNamespace space;
    private final int wanted;
    private final Random random;
    private final List<String> refusals = Collections.synchronizedList(new ArrayList<>());
    private final Thread thread = new Thread(this::run, "churn");
    private volatile boolean closed;
    private int made;

    PodChurn(TestNamespace space, int nodes, long seed) {
        this.space = space;
        this.wanted = nodes * WANTED_PER_NODE;
        this.random = new Random(seed);
        thread.setDaemon(true);
        thread.start();
    }

    /** What the API server said against pods that it should have taken. */
    List<String> refusals() {
        synchronized (refusals) {
            return List.copyOf(refusals);
        }
    }

    private void run() {
        var boundAt = new HashMap<String, Long>();
        while (!closed) {
            try {
                List<Pod> pods = space.client()
                        .pods()
                        .inNamespace(space.name())
                        .withLabel("churn")
                        .list()
                        .getItems();
                long now = System.nanoTime();
                for (Pod pod : pods) {
                    String name = pod.getMetadata().getName();
                    if (TestNamespace.bound(pod)
                            && now - boundAt.computeIfAbsent(name, key -> now)
                                    > TimeUnit.MILLISECONDS.toNanos(LIVES_MS)) {
                        end(pod);
                    }
                }
                for (int i = pods.size(); i < wanted && !closed; i++) {
                    create();
                }
            } catch (KubernetesClientException e) {
                refusals.add(String.valueOf(e.getMessage()));
            }
            try {
                TimeUnit.MILLISECONDS.sleep(100);
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private void create() {
        var limits = new HashMap<String, String>();
        int memory = MEMORY[random.nextInt(MEMORY.length)];
        int cores = CORES[random.nextInt(CORES.length)];
        limits.put(Resources.GPU, random.nextInt(5) == 0 ? "2" : "1");
        if (random.nextInt(12) != 0) { // else whole cards
            limits.put(Resources.MEMORY, Integer.toString(memory));
            if (cores > 0) {
                limits.put(Resources.CORES, Integer.toString(cores));
            }
        }
        Pod pod = HollowNodes.only(Pods.asking(space.lab(), "churn-" + made, limits));
        made++;
        space.create(pod.edit()
                .editMetadata()
                .withLabels(Map.of("churn", ""))
                .endMetadata()
                .build());
    }

    /** Half of them end by themselves, as Jobs do, the others are deleted. */
    private void end(Pod pod) {
        if (random.nextBoolean()) {
            space.end(pod.getMetadata().getName());
        }
        space.tellToLeave(pod);
    }

    @Override
    public void close() {
        closed = true;
        try {
            thread.join(TimeUnit.SECONDS.toMillis(30));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
