package io.aliquot.deviceplugin.usage;

import io.aliquot.api.names.Resources;
import io.aliquot.api.shim.Region;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport.Problem;
import io.aliquot.deviceplugin.files.ContainerFiles;
import io.aliquot.deviceplugin.files.HeldFile;
import io.aliquot.deviceplugin.files.HeldFile.Status;
import io.aliquot.deviceplugin.files.HeldFiles;
import io.aliquot.deviceplugin.files.HeldFiles.Refused;
import io.aliquot.deviceplugin.files.SlotFiles;
import io.aliquot.deviceplugin.kubelet.DeviceHolders;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/**
 * Keeps regions at their size and open. A region is an ordinary file of the host that the processes of its container can
 * write, so they could fill the node's disk with it or take leases on it. A process that maps a region loses nothing when the
 * rest is cut off. One thread looks, four times a second, and waits for no container; what has to wait has a thread for each
 * region.
 */
public final class RegionGuard implements AutoCloseable {
    private static final Logger LOG = System.getLogger(RegionGuard.class.getName());
    private static final Duration PERIOD = Duration.ofMillis(250);

    /** A leased file is tried again each millisecond, since a container can take the lease again as fast. */
    private static final int PAUSES_WHILE_LEASED = 250;

    /** Beyond its size a region's file has blocks that the file system allocates ahead or keeps its map in. */
    private static final long MOST_ALLOCATED = 2L * Region.SIZE;

    /** Between two reports about a region. */
    private static final Duration PAUSE = Duration.ofSeconds(5);

    private static final Duration KEPT = Duration.ofMinutes(2);
    private static final LinkOption NO_LINKS = LinkOption.NOFOLLOW_LINKS;

    private final SlotFiles files;
    private final ContainerFiles regions;
    private final Supplier<DeviceHolders> podResources;
    private final RecentFindings findings;
    private final AgentMetrics metrics;
    private final LongSupplier nanoTime;

    private final ExecutorService waiting = Executors.newThreadPerTaskExecutor(
            Thread.ofPlatform().daemon().name("region-", 0).factory());
    private final Thread thread = new Thread(this::run, "regions");
    private volatile boolean closed;

    /** When each region's inode had changed when it was tidied last. */
    private final Map<String, Long> tidied = new HashMap<>();

    /** The slots whose regions are being tidied. */
    private final Set<String> busy = ConcurrentHashMap.newKeySet();

    /** When a container's abuse of a file was reported last, by slot. */
    private final Map<String, Long> abused = new ConcurrentHashMap<>();

    /**
     * Looks at nothing before {@link #start}.
     *
     * @param podResources asks the kubelet which containers hold slots
     * @param findings gets the containers that abuse their regions
     * @param nanoTime a clock such as {@link System#nanoTime}
     */
    public RegionGuard(
            SlotFiles files,
            Supplier<DeviceHolders> podResources,
            RecentFindings findings,
            AgentMetrics metrics,
            LongSupplier nanoTime) {
        this.files = files;
        regions = files.regions();
        this.podResources = podResources;
        this.findings = findings;
        this.metrics = metrics;
        this.nanoTime = nanoTime;
        thread.setDaemon(true);
    }

    /** Starts to look. */
    public void start() {
        thread.start();
    }

    @Override
    public void close() {
        closed = true;
        thread.interrupt();
        waiting.shutdownNow();
    }

    private void run() {
        try {
            while (!closed) {
                look();
                int pauses = files.isLeased() ? PAUSES_WHILE_LEASED : 1;
                for (int i = 0; i < pauses; i++) {
                    TimeUnit.NANOSECONDS.sleep(PERIOD.toNanos() / pauses);
                    files.retryLeased();
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** One look at all files. */
    void look() {
        files.refresh();
        regions.held().forEach((slot, file) -> {
            try {
                Status status = file.status();
                boolean changed = !Long.valueOf(status.changed()).equals(tidied.put(slot, status.changed()));
                if (changed || isLarge(status)) {
                    inBackground(slot, () -> tidy(slot, file, status));
                }
            } catch (IOException e) {
                LOG.log(Level.DEBUG, "Cannot check the region of {0}: {1}", slot, e.toString());
            }
        });
        for (HeldFiles ofSlots : List.of(regions, files.agentFiles())) {
            ofSlots.refused().forEach((slot, why) -> inBackground(slot, () -> refused(ofSlots, slot, why)));
        }
        tidied.keySet().retainAll(regions.held().keySet());
        abused.values().removeIf(at -> nanoTime.getAsLong() - at > KEPT.toNanos());
        int shims =
                files.shims().stream().mapToInt(shim -> shim.refused().size()).sum();
        metrics.abusedFiles(abused.size() + shims);
    }

    /** Changes that a container made or may still make to the file, other than by writing into the region. */
    private void inBackground(String slot, Runnable task) {
        if (busy.add(slot)) {
            waiting.execute(() -> {
                try {
                    task.run();
                } finally {
                    busy.remove(slot);
                }
            });
        }
    }

    /** Whether nothing is done in the background. */
    boolean isIdle() {
        return busy.isEmpty();
    }

    private static boolean isLarge(Status status) {
        return status.size() > Region.SIZE || status.allocated() > MOST_ALLOCATED;
    }

    private static long bytes(Status status) {
        return status.size() > Region.SIZE ? status.size() : status.allocated();
    }

    private void tidy(String slot, HeldFile file, Status found) {
        boolean tidy = true;
        try {
            if (isLarge(found)) {
                file.cut(Region.SIZE);
            }
            file.removeAttributes();
        } catch (IOException e) {
            LOG.log(Level.DEBUG, "Cannot tidy the region of {0}: {1}", slot, e.toString());
            tidy = false;
        }
        if (isLarge(found)) {
            report(slot, Optional.of(file), new Problem.LargeRegion(bytes(found), tidy));
        }
    }

    private void refused(HeldFiles ofSlots, String slot, Refused why) {
        Path path = ofSlots.path(slot);
        try {
            if (why == Refused.LEASED) {
                report(slot, Optional.empty(), new Problem.LeasedFile());
                return;
            }
            if (!Files.isRegularFile(path, NO_LINKS)) {
                return; // only the host's root can have put it there
            }
            // The agent has no capabilities, so it cannot if the container has given the file to another user.
            Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rw-rw-rw-"));
        } catch (IOException e) {
            report(
                    slot,
                    Optional.empty(),
                    new Problem.LargeRegion(Math.max(1, path.toFile().length()), false));
        }
    }

    /**
     * Names the container, or removes its region if it is gone.
     *
     * @param file the region's; empty if it is not open
     */
    private void report(String slot, Optional<HeldFile> file, Problem problem) {
        long now = nanoTime.getAsLong();
        Long before = abused.get(slot);
        if (before != null && now - before < PAUSE.toNanos()) {
            return;
        }
        abused.put(slot, now);
        DeviceHolders holders = podResources.get();
        Optional<PodContainer> holder = holder(holders, slot);
        if (before == null) {
            LOG.log(
                    Level.WARNING,
                    "The container {0} abuses a file of Aliquot''s: {1}",
                    holder.map(PodContainer::toString).orElse("of " + slot),
                    problem);
        }
        holder.ifPresent(container -> findings.add(container, problem));
        if (holder.isEmpty()
                && holders instanceof DeviceHolders.Known
                && !(problem instanceof Problem.LargeRegion(long bytes, boolean cut) && cut)) {
            try {
                regions.remove(slot, file); // its container is gone, and what it left is not freed otherwise
            } catch (IOException e) {
                LOG.log(Level.DEBUG, "Cannot remove the region of {0}: {1}", slot, e.toString());
            }
        }
    }

    private static Optional<PodContainer> holder(DeviceHolders holders, String slot) {
        return holders instanceof DeviceHolders.Known known
                ? known.list().stream()
                        .filter(holder -> holder.resource().equals(Resources.VGPU)
                                && holder.deviceIds().contains(slot))
                        .map(RegionGuard::container)
                        .flatMap(Optional::stream)
                        .findFirst()
                : Optional.empty();
    }

    private static Optional<PodContainer> container(DeviceHolders.Holder holder) {
        int slash = holder.pod().indexOf('/');
        return slash < 1 || holder.container().isEmpty()
                ? Optional.empty()
                : Optional.of(new PodContainer(
                        holder.pod().substring(0, slash), holder.pod().substring(slash + 1), "", holder.container()));
    }
}
