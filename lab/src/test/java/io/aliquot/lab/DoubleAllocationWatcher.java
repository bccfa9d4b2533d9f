package io.aliquot.lab;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watch;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * An auditor from outside: sees every version of every pod in the order in which etcd took them, and adds up what is
 * held of each GPU after each. Shares no code with what it audits: names and formats are written out here once more.
 */
final class DoubleAllocationWatcher implements Watcher<Pod>, AutoCloseable {
    private static final String ALLOCATION = "aliquot.io/vgpu.";
    private static final Pattern LINE =
            Pattern.compile("(GPU-[0-9a-f-]{36}) (?:.* )?memory=([0-9]+)Mi (?:.* )?cores=([0-9]+)( .*)?");
    private static final ObjectMapper JSON = new ObjectMapper();

    private record Size(long memory, long slots) {}

    private record Share(String gpu, long memory, long cores, boolean exclusive) {}

    /**
     * A pod has got its node.
     *
     * @param at by {@link System#nanoTime}
     * @param scheduler the kube-scheduler under whose leadership it was bound, as the Lease names it
     */
    record Bound(long at, String scheduler) {}

    private final Map<String, Size> gpus = new HashMap<>();
    private final Map<String, List<Share>> holdings = new HashMap<>();
    private final Map<String, String> names = new HashMap<>();
    private final List<String> violations = new ArrayList<>();
    private final List<Bound> bound = new ArrayList<>();
    private final KubernetesClient client;
    private @Nullable Watch watch;
    private boolean closed;

    /** Begins with what is there now. */
    DoubleAllocationWatcher(KubernetesClient client) {
        this.client = client;
        for (Node node : client.nodes().list().getItems()) {
            Map<String, String> annotations = node.getMetadata().getAnnotations();
            String text = annotations == null ? null : annotations.get("aliquot.io/gpus");
            if (text != null) {
                learn(text);
            }
        }
        look();
        bound.clear();
    }

    /** Takes what is there for all that there is, and watches from there on. */
    private synchronized void look() {
        var pods = client.pods().inAnyNamespace().list();
        Set<String> known = Set.copyOf(holdings.keySet());
        // All of them before any is added: of two that had the same one after the other only the latter is there still.
        holdings.clear();
        pods.getItems().forEach(pod -> hold(pod, known));
        watch = client.pods()
                .inAnyNamespace()
                .watch(
                        new ListOptionsBuilder()
                                .withResourceVersion(pods.getMetadata().getResourceVersion())
                                .withAllowWatchBookmarks(true)
                                .build(),
                        this);
    }

    private void learn(String text) {
        try {
            JsonNode inventory = JSON.readTree(text);
            for (JsonNode gpu : inventory.get("gpus")) {
                gpus.put(
                        gpu.get("uuid").asText(),
                        new Size(
                                gpu.get("memoryMiB").asLong(),
                                inventory.get("slots").asLong()));
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public synchronized void eventReceived(Action action, Pod pod) {
        if (action == Action.DELETED) {
            holdings.remove(pod.getMetadata().getUid());
        } else if (action != Action.BOOKMARK) {
            hold(pod, holdings.keySet());
        }
    }

    /** {@code known}: uids of those whose being bound was seen already. */
    private void hold(Pod pod, Set<String> known) {
        String uid = pod.getMetadata().getUid();
        String phase =
                pod.getStatus() == null ? "" : String.valueOf(pod.getStatus().getPhase());
        if (Set.of("Succeeded", "Failed").contains(phase)) {
            holdings.remove(uid);
            return;
        }
        if (pod.getSpec().getNodeName() == null) {
            return;
        }
        List<Share> shares = shares(pod);
        if (shares.isEmpty() && asks(pod)) {
            violations.add(name(pod) + " is bound without an allocation");
        }
        names.put(uid, name(pod));
        if (!known.contains(uid) && asks(pod)) {
            String fence = pod.getMetadata().getAnnotations().getOrDefault("aliquot.io/fence", "");
            bound.add(new Bound(System.nanoTime(), fence.replaceFirst("/.*", "")));
        }
        holdings.put(uid, shares);
        shares.forEach(share -> check(share.gpu(), pod));
    }

    private static String name(Pod pod) {
        return pod.getMetadata().getNamespace() + "/" + pod.getMetadata().getName();
    }

    private static boolean asks(Pod pod) {
        return pod.getSpec().getContainers().stream()
                .anyMatch(container -> container.getResources() != null
                        && container.getResources().getLimits() != null
                        && container.getResources().getLimits().containsKey("nvidia.com/gpu"));
    }

    private List<Share> shares(Pod pod) {
        var shares = new ArrayList<Share>();
        Map<String, String> annotations = pod.getMetadata().getAnnotations();
        if (annotations != null) {
            annotations.forEach((key, text) -> {
                if (key.startsWith(ALLOCATION)) {
                    text.lines().forEach(line -> {
                        Matcher matcher = LINE.matcher(line);
                        if (matcher.matches()) {
                            shares.add(new Share(
                                    matcher.group(1),
                                    Long.parseLong(matcher.group(2)),
                                    Long.parseLong(matcher.group(3)),
                                    line.contains(" exclusive")));
                        } else {
                            violations.add(name(pod) + " has an allocation that nobody understands: " + line);
                        }
                    });
                }
            });
        }
        return shares;
    }

    private void check(String gpu, Pod latest) {
        long memory = 0;
        long cores = 0;
        long vgpus = 0;
        boolean exclusive = false;
        var holders = new ArrayList<String>();
        for (Map.Entry<String, List<Share>> holding : holdings.entrySet()) {
            for (Share share : holding.getValue()) {
                if (share.gpu().equals(gpu)) {
                    memory += share.memory();
                    cores += share.cores();
                    vgpus++;
                    exclusive |= share.exclusive();
                    holders.add(names.get(holding.getKey()) + " " + share.memory() + " MiB " + share.cores() + " %");
                }
            }
        }
        Size size = gpus.get(gpu);
        if (size == null) {
            violations.add(name(latest) + " was given a GPU that doesn't exist: " + gpu);
        } else if (memory > size.memory() || cores > 100 || vgpus > size.slots() || (exclusive && vgpus > 1)) {
            violations.add(gpu + " is sold twice with " + name(latest) + ": " + holders);
        }
    }

    /** An API server that has just started tells nothing of what was before: what is there then is looked at anew. */
    @Override
    public void onClose(WatcherException cause) {
        if (cause.isHttpGone()) {
            new Thread(this::lookAnew, "observer").start();
        } else {
            lost(cause);
        }
    }

    private void lookAnew() {
        try {
            TestNamespace.awaitTrue("the API server", TestNamespace.EVENTUALLY, () -> {
                try {
                    look();
                    return true;
                } catch (KubernetesClientException e) {
                    return false;
                }
            });
        } catch (AssertionError e) {
            lost(e);
        }
    }

    private synchronized void lost(Throwable cause) {
        if (!closed) {
            violations.add("the observer lost sight of the pods: " + cause);
        }
    }

    /** What must never have been, in the order in which it was. */
    synchronized List<String> violations() {
        return List.copyOf(violations);
    }

    /** The bindings since it began. */
    synchronized List<Bound> bound() {
        return List.copyOf(bound);
    }

    /** The longest time in which nothing was bound, between two instants of {@link System#nanoTime}. */
    Duration longestPause(long from, long to) {
        long longest = 0;
        long last = from;
        for (Bound one : bound()) {
            if (one.at() > from && one.at() < to) {
                longest = Math.max(longest, one.at() - last);
                last = one.at();
            }
        }
        return Duration.ofNanos(Math.max(longest, to - last));
    }

    @Override
    public synchronized void close() {
        closed = true;
        if (watch != null) {
            watch.close();
        }
    }
}
