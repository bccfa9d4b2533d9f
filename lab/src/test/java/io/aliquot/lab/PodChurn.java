package io.aliquot.lab;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;

/** Creates and deletes pods on {@link HollowNodes} all the time, and keeps more of them than fit. */
final class PodChurn implements AutoCloseable {
    /** A pod requests about 25 GB of GPU memory on average; a hollow node has 160 GB. */
    private static final int PODS_PER_NODE = 9;

    private static final long LIFETIME_MS = 2000;
    private static final int[] MEMORY = {8000, 16000, 24000, 40000, 60000};
    private static final int[] CORES = {0, 0, 20, 40, 60};

    private final TestNamespace namespace;
    private final int target;
    private final Random random;
    private final List<String> refusals = Collections.synchronizedList(new ArrayList<>());
    private final Thread thread = new Thread(this::run, "churn");
    private volatile boolean closed;
    private int created;

    PodChurn(TestNamespace namespace, int nodes, long seed) {
        this.namespace = namespace;
        this.target = nodes * PODS_PER_NODE;
        this.random = new Random(seed);
        thread.setDaemon(true);
        thread.start();
    }

    /** Messages of the requests that the API server refused or did not answer. */
    List<String> refusals() {
        synchronized (refusals) {
            return List.copyOf(refusals);
        }
    }

    private void run() {
        var boundAt = new HashMap<String, Long>();
        while (!closed) {
            try {
                List<Pod> pods = namespace
                        .client()
                        .pods()
                        .inNamespace(namespace.name())
                        .withLabel("churn")
                        .list()
                        .getItems();
                long now = System.nanoTime();
                for (Pod pod : pods) {
                    String name = pod.getMetadata().getName();
                    if (TestNamespace.isBound(pod)
                            && now - boundAt.computeIfAbsent(name, key -> now)
                                    > TimeUnit.MILLISECONDS.toNanos(LIFETIME_MS)) {
                        namespace.requestDeletion(pod);
                    }
                }
                for (int i = pods.size(); i < target && !closed; i++) {
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
        limits.put(Resources.VGPU, random.nextInt(5) == 0 ? "2" : "1");
        if (random.nextInt(12) != 0) { // the others request whole cards
            limits.put(Resources.MEMORY, Integer.toString(memory));
            if (cores > 0) {
                limits.put(Resources.CORES, Integer.toString(cores));
            }
        }
        Pod pod = HollowNodes.require(Pods.withLimits(namespace.lab(), "churn-" + created, limits));
        created++;
        namespace.create(pod.edit()
                .editMetadata()
                .withLabels(Map.of("churn", ""))
                .endMetadata()
                .build());
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
