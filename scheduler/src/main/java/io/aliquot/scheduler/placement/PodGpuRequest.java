package io.aliquot.scheduler.placement;

import io.aliquot.api.Compatibility;
import io.aliquot.api.CorePolicy;
import io.aliquot.api.FormatException;
import io.aliquot.api.Gpu;
import io.aliquot.api.Numa;
import io.aliquot.api.Placement;
import io.aliquot.api.PlacementPreferences;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/**
 * What a pod wants of GPUs and of their placing. Immutable; two are equal if every node would answer both alike, which
 * pods of one template are.
 */
public final class PodGpuRequest {
    private final List<ContainerGpuRequest> containers;
    private final PlacementPreferences wishes;
    private final boolean preferences;
    private final HostResources requests;

    private final boolean choosesGpus;
    private final boolean oneDomain;
    private final int mostVgpus;
    private final int hash;
    /** Of each container, by its place. */
    private final List<RefusalReasons> refusals;
    /** Whether it takes a model, by the model: a cluster has few models and many GPUs. */
    private final Map<String, Boolean> models = new ConcurrentHashMap<>();

    private @Nullable PodGpuRequest bare;

    private PodGpuRequest(List<ContainerGpuRequest> containers, PlacementPreferences wishes, boolean preferences) {
        this(
                containers,
                wishes,
                preferences,
                HostResources.NONE,
                wishes.numa().filter(Numa.REQUIRED::equals).isPresent());
    }

    private PodGpuRequest(
            List<ContainerGpuRequest> containers,
            PlacementPreferences wishes,
            boolean preferences,
            HostResources requests,
            boolean oneDomain) {
        this.containers = List.copyOf(containers);
        this.wishes = wishes;
        this.preferences = preferences;
        this.requests = requests;
        this.choosesGpus = wishes.choosesGpus();
        this.oneDomain = oneDomain;
        this.mostVgpus = containers.stream()
                .mapToInt(container -> container.request().vgpus())
                .max()
                .orElse(0);
        this.hash = Objects.hash(containers, wishes, preferences, requests, oneDomain);
        this.refusals = new ArrayList<>(containers.size());
        containers.forEach(container -> refusals.add(new RefusalReasons(container, containers.size() > 1)));
    }

    /**
     * Reads a pod's wishes.
     *
     * @param containers that ask for GPUs, in the order of their declaration, init containers first
     * @param annotations the pod's
     * @param preferences whether the pod states soft preferences that kube-scheduler scores nodes by
     * @throws FormatException where an annotation's value is unknown
     */
    public static PodGpuRequest of(
            List<ContainerGpuRequest> containers, Map<String, String> annotations, boolean preferences) {
        return of(containers, PlacementPreferences.parse(annotations), preferences);
    }

    /** The same of a pod whose annotations have been read. */
    public static PodGpuRequest of(
            List<ContainerGpuRequest> containers, PlacementPreferences wishes, boolean preferences) {
        Compatibility compatibility = wishes.compatibility().orElse(Compatibility.NONE);
        List<ContainerGpuRequest> asked = compatibility == Compatibility.NONE
                ? containers
                : containers.stream().map(one -> one.as(compatibility)).toList();
        return new PodGpuRequest(asked, wishes, preferences);
    }

    /** The same pod, were its containers to ask for this. */
    public PodGpuRequest with(List<ContainerGpuRequest> containers) {
        return new PodGpuRequest(containers, wishes, preferences, requests, oneDomain);
    }

    /** The same pod, with these requests of CPU and memory; without this it has none. */
    public PodGpuRequest requesting(HostResources load) {
        return requests.equals(load) ? this : new PodGpuRequest(containers, wishes, preferences, load, oneDomain);
    }

    /** The same pod without requests of CPU and memory. */
    public PodGpuRequest withoutRequests() {
        PodGpuRequest without = bare;
        if (without == null) { // at worst made by several threads
            without = requesting(HostResources.NONE);
            bare = without;
        }
        return without;
    }

    /** The same pod, if its GPUs might hang on any NUMA domains. */
    public PodGpuRequest inAnyDomains() {
        return new PodGpuRequest(containers, wishes, preferences, requests, false);
    }

    public List<ContainerGpuRequest> containers() {
        return containers;
    }

    /** How the pod wants its node chosen, if it says. */
    public Optional<Placement> nodePlacement() {
        return wishes.nodePlacement();
    }

    /** How the pod wants its GPUs chosen, if it says. */
    public Optional<Placement> gpuPlacement() {
        return wishes.gpuPlacement();
    }

    /** Whether the pod wants the GPUs that are linked best, whatever the placement. */
    public boolean topology() {
        return wishes.topology();
    }

    /** Whether all GPUs of a container shall hang on one NUMA domain, if the pod says. */
    public Optional<Numa> numa() {
        return oneDomain ? wishes.numa() : wishes.numa().filter(Numa.PREFERRED::equals);
    }

    /** Whether a container's GPUs have to hang on one NUMA domain. */
    public boolean oneDomain() {
        return oneDomain;
    }

    /** What its share of compute means while others are idle. */
    public CorePolicy corePolicy() {
        return wishes.corePolicy();
    }

    /** Whose kernels go first on a GPU. */
    public int priority() {
        return wishes.priority();
    }

    public boolean preferences() {
        return preferences;
    }

    /** What it requests of CPU and memory. */
    public HostResources requests() {
        return requests;
    }

    /** Whether the pod takes this GPU at all: its model, its UUID, its index. */
    public boolean takes(Gpu gpu) {
        return !choosesGpus || (takesModel(gpu) && wishes.takes(gpu));
    }

    boolean takesModel(Gpu gpu) {
        return !choosesGpus || models.computeIfAbsent(gpu.model(), wishes::takesModel);
    }

    RefusalReasons refusals(int container) {
        return refusals.get(container);
    }

    /** Whether one vGPU is all that it asks for. */
    public boolean wantsOneGpu() {
        return containers.size() == 1 && containers.get(0).request().vgpus() == 1;
    }

    /** The most vGPUs, and so different GPUs, that one container asks for; 0 where none asks. */
    public int mostVgpus() {
        return mostVgpus;
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof PodGpuRequest ask
                && hash == ask.hash
                && preferences == ask.preferences
                && oneDomain == ask.oneDomain
                && requests.equals(ask.requests)
                && containers.equals(ask.containers)
                && wishes.equals(ask.wishes);
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
