package io.aliquot.deviceplugin.node;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.JsonNode;

/**
 * The devices of the node's ResourceSlices ({@code resource.k8s.io/v1}, Kubernetes 1.34 and later). They are listed, and again
 * when a watch reports a change. The API server finds the slices of a node by an index
 * (pkg/registry/resource/resourceslice/strategy.go). Thread-safe.
 */
final class ResourceSlices implements Reflector.Store, AutoCloseable {
    /** 111 requests a second, lists and watches, by 5,000 nodes. */
    private static final Duration SHORTEST_WATCH = Duration.ofMinutes(1);

    private static final String GPU_PREFIX = "GPU-";

    private final ApiServerClient server;
    private final Runnable onChange;
    private final Reflector reflector;
    private volatile @Nullable List<DraDevice> devices;

    /** Starts to list and watch, until {@link #close}. */
    ResourceSlices(ApiServerClient server, String node, Runnable onChange, LongSupplier nanoTime) {
        this.server = server;
        this.onChange = onChange;
        String path = "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3D" + node;
        reflector = new Reflector(server, "this node's ResourceSlices", path, SHORTEST_WATCH, this, nanoTime);
        reflector.start();
    }

    /** The devices now; empty before the API server's first answer. Without the API, or the right to list it, there are none. */
    Optional<List<DraDevice>> devices() {
        reflector.closeIfOverdue();
        return Optional.ofNullable(devices);
    }

    @Override
    public Optional<JsonNode> list(String path) throws IOException, InterruptedException {
        try {
            JsonNode list = server.get(path);
            set(devices(list));
            return Optional.of(list);
        } catch (ApiServerClient.RefusedException e) {
            set(List.of());
            if (e.status() == 404) {
                return Optional.empty();
            }
            throw e;
        }
    }

    /** Any change leads to a list after a pause, since a driver replaces several slices one after the other. */
    @Override
    public boolean handle(String type, JsonNode slice) {
        return false;
    }

    private void set(List<DraDevice> found) {
        boolean changed = !found.equals(devices);
        devices = found;
        if (changed) {
            onChange.run();
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

    @Override
    public void close() {
        reflector.close();
    }
}
