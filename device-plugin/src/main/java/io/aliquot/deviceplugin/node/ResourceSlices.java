package io.aliquot.deviceplugin.node;

import io.aliquot.deviceplugin.problem.Backoff;
import io.aliquot.deviceplugin.problem.Problem;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.MappingIterator;

/**
 * The devices of the node's ResourceSlices ({@code resource.k8s.io/v1}, Kubernetes 1.34 and later), on a thread of its own.
 * It lists them, and again when a watch reports a change. The API server finds the slices of a node by an index
 * (pkg/registry/resource/resourceslice/strategy.go). Thread-safe.
 */
final class ResourceSlices implements AutoCloseable {
    private static final Logger LOG = System.getLogger(ResourceSlices.class.getName());
    /** 111 requests a second, lists and watches, by 5,000 nodes. */
    private static final Duration SHORTEST_WATCH = Duration.ofMinutes(1);

    private static final Duration FIRST_PAUSE = Duration.ofMillis(500);
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(30);

    /** Until the next question to an API server that does not have the API; an upgrade may bring it. */
    private static final Duration PAUSE_WITHOUT_API = Duration.ofMinutes(10);

    private static final String GPU_PREFIX = "GPU-";

    private final ApiServerClient server;
    private final String path;
    private final Runnable onChange;
    private final WatchStream watch;
    private final Backoff backoff;
    private final Problem failure = new Problem(LOG, Level.WARNING);
    private final Thread thread;
    private volatile boolean closed;
    private volatile @Nullable List<DraDevice> devices;

    /** Starts to list and watch, until {@link #close}. */
    ResourceSlices(ApiServerClient server, String node, Runnable onChange, LongSupplier nanoTime) {
        this.server = server;
        this.onChange = onChange;
        watch = new WatchStream(SHORTEST_WATCH, nanoTime);
        path = "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3D" + node;
        backoff = new Backoff(nanoTime, FIRST_PAUSE, LONGEST_PAUSE);
        thread = new Thread(this::run, "resource-slices");
        thread.setDaemon(true);
        thread.start();
    }

    /** The devices now; empty before the API server's first answer. Without the API there are none. */
    Optional<List<DraDevice>> devices() {
        watch.closeIfOverdue();
        return Optional.ofNullable(devices);
    }

    @Override
    public void close() {
        closed = true;
        watch.close();
        thread.interrupt();
    }

    private void run() {
        try {
            while (!closed) {
                WatchStream.pause(listAndFollow());
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt(); // closed
        }
    }

    /** Returns the pause until the next list. */
    private Duration listAndFollow() throws InterruptedException {
        try {
            JsonNode list = server.get(path);
            set(devices(list));
            failure.resolve();
            backoff.reset();
            watch.follow(server, path, list, this::awaitChange);
            return FIRST_PAUSE; // a driver replaces several slices one after the other
        } catch (ApiServerClient.RefusedException e) {
            if (e.status() != 404) {
                failure.report("cannot list this node's ResourceSlices and takes them for none: " + e.getMessage());
            }
            set(List.of());
            return PAUSE_WITHOUT_API;
        } catch (IOException | JacksonException e) {
            if (!closed) {
                failure.report("cannot watch this node's ResourceSlices, retrying: " + e);
            }
            return backoff.start();
        }
    }

    private void set(List<DraDevice> found) {
        boolean changed = !found.equals(devices);
        devices = found;
        if (changed) {
            onChange.run();
        }
    }

    private void awaitChange(MappingIterator<JsonNode> events) {
        if (!closed) {
            events.hasNextValue();
        }
    }

    /** Attributes are strings, numbers, booleans and versions; a GPU's UUID is a string (k8s.io/api, resource/v1). */
    private static List<DraDevice> devices(JsonNode list) {
        var devices = new ArrayList<DraDevice>();
        for (JsonNode slice : list.path("items")) {
            JsonNode spec = slice.path("spec");
            String pool = spec.path("pool").path("name").asString("");
            for (JsonNode device : spec.path("devices")) {
                Set<String> gpus = new HashSet<>();
                device.path("attributes").properties().forEach(attribute -> {
                    String text = attribute.getValue().path("string").asString("");
                    if (text.startsWith(GPU_PREFIX)) {
                        gpus.add(text);
                    }
                });
                devices.add(new DraDevice(
                        spec.path("driver").asString(""),
                        pool + "/" + device.path("name").asString(""),
                        gpus));
            }
        }
        return List.copyOf(devices);
    }
}
