package io.aliquot.deviceplugin.guard;

import io.aliquot.api.usage.UsageReport.Problem;
import io.aliquot.deviceplugin.attribution.ContainerId;
import io.aliquot.deviceplugin.attribution.ContainerName;
import io.aliquot.deviceplugin.attribution.ContainerNames;
import io.aliquot.deviceplugin.attribution.HostProcesses;
import io.aliquot.deviceplugin.attribution.Limits;
import io.aliquot.deviceplugin.attribution.PodCgroups;
import io.aliquot.deviceplugin.guard.LimitsCheck.View;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/*
 * Why by what the scheduler says. A kubelet that has lost its device checkpoint admits bound pods without Allocate, so
 * that PodResources does not list them, and nothing of Aliquot is in their containers; the GPU is, by the pod's
 * annotation. NVML lists a process only once it uses the GPU, which may be long after.
 */
/**
 * Looks at the first process of each container that holds a vGPU, whether it uses a GPU or not. A container that sees a GPU
 * and not the files that limit it is a finding, and so is one that sees no GPU.
 *
 * <p>Not thread-safe.
 */
public final class HolderCheck {
    /** From a container's first sight to the first look. */
    static final Duration PERIOD = Duration.ofSeconds(5);

    /** Between two looks at a container that has run for as long. */
    static final Duration LONGEST_PAUSE = Duration.ofSeconds(30);

    /** What is due then has its turn in the next run. */
    private static final Duration LONGEST_RUN = Duration.ofSeconds(1);

    private final PodCgroups cgroups;
    private final ContainerNames names;
    private final HostProcesses processes;
    private final LimitsCheck check;
    private final Supplier<Limits> limits;
    private final RecentFindings findings;
    private final LongSupplier nanoTime;
    private final Map<ContainerId, Known> known = new HashMap<>();

    /** A container, or the sandbox of a pod, which has no name and is looked up less and less often. */
    private record Known(long since, long nextAt) {}

    /**
     * Looks at nothing yet.
     *
     * @param proc {@code /proc} of the host's PID namespace
     * @param containerLogs the kubelet's links to the logs of containers
     * @param stateDir Aliquot's folder on the host, at the same path in this process
     * @param limits what the scheduler said last of this node
     * @param nanoTime a clock such as {@link System#nanoTime}
     */
    public HolderCheck(
            Path proc,
            Path containerLogs,
            Path stateDir,
            PodCgroups cgroups,
            Supplier<Limits> limits,
            RecentFindings findings,
            LongSupplier nanoTime) {
        this.cgroups = cgroups;
        names = new ContainerNames(containerLogs);
        processes = new HostProcesses(proc);
        check = new LimitsCheck(proc, stateDir, processes, nanoTime);
        this.limits = limits;
        this.findings = findings;
        this.nanoTime = nanoTime;
    }

    /** Looks at the containers that are due. */
    public void run() {
        long now = nanoTime.getAsLong();
        Limits said = limits.get();
        Map<ContainerId, Path> running = cgroups.containers(said.pods());
        known.keySet().retainAll(running.keySet());
        for (Map.Entry<ContainerId, Path> container : running.entrySet()) {
            ContainerId id = container.getKey();
            Known one = known.computeIfAbsent(id, unused -> new Known(now, now + PERIOD.toNanos()));
            if (now - one.nextAt >= 0 && nanoTime.getAsLong() - now < LONGEST_RUN.toNanos()) {
                long age = now - one.since;
                Optional<ContainerName> name = names.find(id);
                long pause = name.isPresent() ? Math.min(age, LONGEST_PAUSE.toNanos()) : age;
                known.put(id, new Known(one.since, now + pause));
                name.filter(found -> said.holdsVgpu(id.podUid(), found))
                        .ifPresent(found -> look(id, found, container.getValue()));
            }
        }
        processes.retain(Set.of());
    }

    /** Looks at the process that has run longest: a later one may have mounts of its own. */
    private void look(ContainerId id, ContainerName name, Path cgroup) {
        PodCgroups.processes(cgroup).stream()
                .flatMap(pid -> processes.find(pid).stream()
                        .filter(process -> process.container().equals(Optional.of(id)))
                        .map(process -> Map.entry(pid, process)))
                .min(Comparator.comparingLong(
                        one -> Long.parseLong(one.getValue().startTime())))
                .flatMap(first -> check.look(first.getKey(), first.getValue(), name))
                .filter(view -> !view.isStarting())
                .flatMap(HolderCheck::problem)
                .ifPresent(problem -> findings.add(name.ofPod(id.podUid()), problem));
    }

    /** A container that sees no GPU needs no limits. */
    private static Optional<Problem> problem(View view) {
        return view.driver()
                ? view.missing()
                        .filter(missing -> !missing.moved()) // with its shim, or found once NVML lists a process
                        .map(missing -> new Problem.LimitsNotSeen(missing.path()))
                : Optional.of(new Problem.GpuNotSeen());
    }
}
