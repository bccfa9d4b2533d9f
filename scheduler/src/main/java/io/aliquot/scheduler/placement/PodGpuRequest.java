package io.aliquot.scheduler.placement;

import io.aliquot.api.foreign.HamiAnnotations;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Numa;
import io.aliquot.api.pods.Placement;
import io.aliquot.api.pods.PlacementPreferences;
import io.aliquot.api.pods.Priority;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/**
 * What a pod requests: GPUs for each container, preferences and constraints for their placement, and host resources.
 * Immutable and thread-safe. Every node answers equal requests alike; pods of one template have equal requests.
 */
public final class PodGpuRequest {
    /** Nodes name models, so their number is theirs. */
    private static final int MAX_CACHED_MODELS = 64;

    private final List<ContainerGpuRequest> containers;
    private final PlacementPreferences placement;
    private final boolean preferences;
    private final HostResources hostRequests;
    private final PodScopes scopes;
    private final PodRuntime runtime;

    private final boolean choosesGpus;
    private final boolean oneDomain;
    private final int mostVgpus;
    private final int hash;
    /** For each container, in the order of {@link #containers}. */
    private final List<RefusalReasons> refusals;
    /** Whether the pod takes a GPU model, cached by model: a cluster has few models and many GPUs. */
    private final Map<String, Boolean> takenModels = new ConcurrentHashMap<>();

    /** The result of {@link #withoutHostRequests}; created on first use. */
    private @Nullable PodGpuRequest cachedWithoutHostRequests;

    private PodGpuRequest(List<ContainerGpuRequest> containers, PlacementPreferences placement, boolean preferences) {
        this(
                containers,
                placement,
                preferences,
                HostResources.NONE,
                PodScopes.NONE,
                PodRuntime.DEFAULT,
                placement.numa().filter(Numa.REQUIRED::equals).isPresent());
    }

    private PodGpuRequest(
            List<ContainerGpuRequest> containers,
            PlacementPreferences placement,
            boolean preferences,
            HostResources hostRequests,
            PodScopes scopes,
            PodRuntime runtime,
            boolean oneDomain) {
        this.containers = List.copyOf(containers);
        this.placement = placement;
        this.preferences = preferences;
        this.hostRequests = hostRequests;
        this.scopes = scopes;
        this.runtime = runtime;
        this.choosesGpus = placement.choosesGpus();
        this.oneDomain = oneDomain;
        this.mostVgpus = containers.stream()
                .mapToInt(container -> container.request().vgpus())
                .max()
                .orElse(0);
        this.hash = Objects.hash(containers, placement, preferences, hostRequests, scopes, runtime, oneDomain);
        this.refusals = new ArrayList<>(containers.size());
        containers.forEach(container -> refusals.add(new RefusalReasons(container, containers.size() > 1)));
    }

    /**
     * Reads a pod's request.
     *
     * @param containers the containers that request GPUs, in the order of their declaration, init containers first
     * @param annotations the pod's annotations
     * @param preferences whether the pod has soft preferences by which kube-scheduler scores nodes
     * @throws FormatException if an annotation's value is unknown
     */
    public static PodGpuRequest of(
            List<ContainerGpuRequest> containers, Map<String, String> annotations, boolean preferences) {
        return of(containers, HamiAnnotations.preferences(annotations), preferences);
    }

    /** As {@link #of(List, Map, boolean)}, with the pod's annotations already parsed. */
    public static PodGpuRequest of(
            List<ContainerGpuRequest> containers, PlacementPreferences placement, boolean preferences) {
        Compatibility compatibility = placement.compatibility().orElse(Compatibility.NONE);
        return new PodGpuRequest(
                containers.stream().map(one -> one.as(compatibility)).toList(), placement, preferences);
    }

    /** The same pod with other requests of its containers. */
    public PodGpuRequest with(List<ContainerGpuRequest> containers) {
        return new PodGpuRequest(containers, placement, preferences, hostRequests, scopes, runtime, oneDomain);
    }

    /** The same pod with these requests of CPU and memory; {@link #of} creates it without. */
    public PodGpuRequest withHostRequests(HostResources amount) {
        return hostRequests.equals(amount)
                ? this
                : new PodGpuRequest(containers, placement, preferences, amount, scopes, runtime, oneDomain);
    }

    /** The same pod in these scopes of quotas; {@link #of} creates it without. */
    public PodGpuRequest withScopes(PodScopes scopes) {
        return this.scopes.equals(scopes)
                ? this
                : new PodGpuRequest(containers, placement, preferences, hostRequests, scopes, runtime, oneDomain);
    }

    /** The same pod with this runtime; {@link #of} creates it with the default. */
    public PodGpuRequest withRuntime(PodRuntime runtime) {
        return this.runtime.equals(runtime)
                ? this
                : new PodGpuRequest(containers, placement, preferences, hostRequests, scopes, runtime, oneDomain);
    }

    /** The same pod without requests of CPU and memory, and without scopes of quotas. */
    public PodGpuRequest withoutHostRequests() {
        PodGpuRequest without = cachedWithoutHostRequests;
        if (without == null) { // a race creates equal objects
            without = withHostRequests(HostResources.NONE).withScopes(PodScopes.NONE);
            cachedWithoutHostRequests = without;
        }
        return without;
    }

    /** The same pod without the requirement that a container's GPUs are in one NUMA domain. */
    public PodGpuRequest withoutNumaRequirement() {
        return new PodGpuRequest(containers, placement, preferences, hostRequests, scopes, runtime, false);
    }

    /** The containers that request GPUs, in the order of their declaration, init containers first; may be empty. */
    public List<ContainerGpuRequest> containers() {
        return containers;
    }

    /** The policy by which to score nodes; empty if the pod does not set one. */
    public Optional<Placement> nodePlacement() {
        return placement.nodePlacement();
    }

    /** The policy by which to select GPUs within a node; empty if the pod does not set one. */
    public Optional<Placement> gpuPlacement() {
        return placement.gpuPlacement();
    }

    /** Whether the links between GPUs come before the placement policy. */
    public boolean topology() {
        return placement.topology();
    }

    /** Whether the pod prefers or requires that a container's GPUs are in one NUMA domain; empty if neither. */
    public Optional<Numa> numa() {
        return oneDomain ? placement.numa() : placement.numa().filter(Numa.PREFERRED::equals);
    }

    /** Whether the pod requires that all GPUs of a container are in one NUMA domain. */
    public boolean requiresOneNumaDomain() {
        return oneDomain;
    }

    /** Whether the pod's vGPUs may use more compute than their cores. */
    public CorePolicy corePolicy() {
        return placement.corePolicy();
    }

    /** Whether the pod's kernels go before others', or after them. */
    public Priority priority() {
        return placement.priority();
    }

    /** Whether the pod has soft preferences by which kube-scheduler scores nodes. */
    public boolean preferences() {
        return preferences;
    }

    /** The pod's requests of CPU and memory. */
    public HostResources hostRequests() {
        return hostRequests;
    }

    /** What decides which quotas count the pod. */
    public PodScopes scopes() {
        return scopes;
    }

    /** What the pod asks of its node's container runtime. */
    public PodRuntime runtime() {
        return runtime;
    }

    /** Whether the pod's constraints on model, UUID and index admit a GPU. */
    public boolean takes(Gpu gpu) {
        return !choosesGpus || (takesModel(gpu) && placement.takes(gpu));
    }

    /** Whether the pod's constraints on the model admit a GPU. */
    boolean takesModel(Gpu gpu) {
        if (!choosesGpus) {
            return true;
        }
        Boolean known = takenModels.get(gpu.model());
        if (known != null) {
            return known;
        }
        boolean taken = placement.takesModel(gpu.model());
        if (takenModels.size() < MAX_CACHED_MODELS) {
            takenModels.put(gpu.model(), taken);
        }
        return taken;
    }

    RefusalReasons refusals(int container) {
        return refusals.get(container);
    }

    /** Whether the pod requests exactly one vGPU. */
    public boolean requestsOneVgpu() {
        return containers.size() == 1 && containers.get(0).request().vgpus() == 1;
    }

    /** The most vGPUs of one container, each on a different GPU; 0 if the pod requests no GPU. */
    public int mostVgpus() {
        return mostVgpus;
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof PodGpuRequest that
                && hash == that.hash
                && preferences == that.preferences
                && oneDomain == that.oneDomain
                && hostRequests.equals(that.hostRequests)
                && scopes.equals(that.scopes)
                && runtime.equals(that.runtime)
                && containers.equals(that.containers)
                && placement.equals(that.placement);
    }

    @Override
    public int hashCode() {
        return hash;
    }

    @Override
    public String toString() {
        return containers.toString();
    }
}
