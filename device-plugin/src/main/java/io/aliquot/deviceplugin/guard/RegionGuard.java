package io.aliquot.deviceplugin.guard;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Resources;
import io.aliquot.api.shim.Region;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport.Problem;
import io.aliquot.deviceplugin.files.HeldFile;
import io.aliquot.deviceplugin.files.HeldFile.Status;
import io.aliquot.deviceplugin.files.HeldFiles;
import io.aliquot.deviceplugin.files.SlotFiles;
import io.aliquot.deviceplugin.kubelet.DeviceHolders;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.periodic.PeriodicTask;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.channels.ClosedChannelException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/**
 * Keeps the files of containers open and regions at their size. A region is an ordinary file of the host that the processes
 * of its container can write, so they could fill the node's disk with it. A process that maps it loses nothing when the rest
 * is cut off. Also finds in regions which containers have refused a process, and which got a CUDA function from the driver
 * that the shim must hook and does not know. One thread looks, four times a second, and waits for no container; what may
 * wait has a thread for each file.
 */
public final class RegionGuard implements AutoCloseable {
    private static final Logger LOG = System.getLogger(RegionGuard.class.getName());
    private static final Duration PERIOD = Duration.ofMillis(250);

    /** More than a file system allocates ahead for a region, or keeps the map of its blocks in. */
    private static final long MOST_ALLOCATED = 2L * Region.SIZE;

    /** Between two reports about a file. */
    private static final Duration PAUSE = Duration.ofSeconds(5);

    private static final Duration KEPT = Duration.ofMinutes(2);
    private static final long NANOS_PER_MILLI = 1_000_000;

    private final SlotFiles files;
    private final Supplier<DeviceHolders> podResources;
    private final RecentFindings findings;
    private final AgentMetrics metrics;
    private final LongSupplier nanoTime;
    private final PeriodicTask looks = new PeriodicTask("regions", PERIOD, this::look);

    /** When each region's inode had changed when it was tidied last; without those that could not be tidied. */
    private final Map<String, Long> tidied = new ConcurrentHashMap<>();

    /** When a container was last found to have more processes than its region holds, by slot. */
    private final Map<String, Long> full = new HashMap<>();

    /** The slots whose containers got a function that is not hooked. */
    private final Set<String> unhooked = new HashSet<>();

    /** The files that a thread in the background works on. */
    private final Set<Path> busy = ConcurrentHashMap.newKeySet();

    /** When a file was reported last. */
    private final Map<String, Long> abused = new ConcurrentHashMap<>();

    /**
     * Looks at nothing before {@link #start}.
     *
     * @param podResources asks the kubelet which containers hold slots
     * @param findings gets the containers that abuse their files
     * @param nanoTime a clock such as {@link System#nanoTime}
     */
    public RegionGuard(
            SlotFiles files,
            Supplier<DeviceHolders> podResources,
            RecentFindings findings,
            AgentMetrics metrics,
            LongSupplier nanoTime) {
        this.files = files;
        this.podResources = podResources;
        this.findings = findings;
        this.metrics = metrics;
        this.nanoTime = nanoTime;
    }

    /** Starts to look. */
    public void start() {
        looks.start();
    }

    @Override
    public void close() {
        looks.close();
    }

    /** One look at all files. */
    void look() {
        for (HeldFiles each : files.all()) {
            try {
                each.refresh();
            } catch (IOException | DirectoryIteratorException e) {
                LOG.log(Level.DEBUG, "Cannot list the files of containers: {0}", e.toString());
            }
            each.refused().forEach(name -> inBackground(each.path(name), () -> refused(each, name)));
        }
        files.regions().held().forEach((slot, file) -> {
            try {
                Status status = file.status();
                boolean changed = !Long.valueOf(status.changed()).equals(tidied.put(slot, status.changed()));
                if (changed || isLarge(status)) {
                    inBackground(files.regions().path(slot), () -> tidy(slot, file, status));
                }
                Region.Notices notices = Region.notices(file::read);
                noteUnhooked(slot, notices.unhookedFunctions() != 0);
                if (isFull(slot, notices.processRefusedMillis())) {
                    inBackground(
                            Path.of("full", slot), // a question to the kubelet, beside what is done with the file
                            () -> holder(podResources.get(), slot)
                                    .ifPresent(container -> findings.add(container, new Problem.ProcessTableFull())));
                }
            } catch (IOException | FormatException e) {
                // For example, its container has emptied or damaged it; the shim repairs or refuses it.
                LOG.log(Level.DEBUG, "Cannot check the region of {0}: {1}", slot, e.toString());
            }
        });
        unhooked.retainAll(files.regions().held().keySet());
        metrics.containersWithUnhookedFunctions(unhooked.size());
        full.keySet().retainAll(files.regions().held().keySet());
        abused.values().removeIf(at -> nanoTime.getAsLong() - at > KEPT.toNanos());
        metrics.abusedFiles(abused.size());
    }

    private void inBackground(Path file, Runnable task) {
        if (busy.add(file)) {
            Thread.ofPlatform().daemon().name("file " + file).start(() -> {
                try {
                    task.run();
                } finally {
                    busy.remove(file);
                }
            });
        }
    }

    /** Whether nothing is done in the background. */
    boolean isIdle() {
        return busy.isEmpty();
    }

    /** Whether the container says that a process of it was refused just now; once in a while, since it may say so for ever. */
    private boolean isFull(String slot, long refused) {
        long now = nanoTime.getAsLong();
        long age = now / NANOS_PER_MILLI - refused;
        Long before = full.get(slot);
        boolean isNew = before == null || now - before > KEPT.toNanos();
        boolean found = refused > 0 && age >= 0 && age < PAUSE.toMillis() && isNew;
        if (found) {
            full.put(slot, now);
        }
        return found;
    }

    /** The shim has no log of its own. A container can write its region, so this finds accidents and not attacks. */
    private void noteUnhooked(String slot, boolean found) {
        if (!found) {
            unhooked.remove(slot);
        } else if (unhooked.add(slot)) {
            LOG.log(
                    Level.ERROR,
                    "In the container of {0} the driver returned a CUDA function that the shim does not know, so"
                            + " its calls bypass the limits: the driver is probably newer than this version of"
                            + " Aliquot supports; upgrade Aliquot, or report the driver''s version",
                    slot);
        }
    }

    private static boolean isLarge(Status status) {
        return status.size() > Region.SIZE || status.allocated() > MOST_ALLOCATED;
    }

    private void tidy(String slot, HeldFile file, Status found) {
        boolean cut = true;
        try {
            if (isLarge(found)) {
                file.cut(Region.SIZE);
            }
            file.removeAttributes();
        } catch (ClosedChannelException e) {
            return; // the slot has another region
        } catch (IOException e) {
            LOG.log(Level.DEBUG, "Cannot tidy the region of {0}: {1}", slot, e.toString());
            cut = false;
            tidied.remove(slot);
        }
        if (isLarge(found) || !cut) { // Btrfs does not count attributes among a file's blocks.
            long bytes = found.size() > Region.SIZE ? found.size() : found.allocated();
            report(slot, cut ? Optional.empty() : Optional.of(file), new Problem.LargeRegion(bytes, cut));
        }
    }

    private void refused(HeldFiles folder, String name) {
        report(name, Optional.empty(), new Problem.ClosedFile());
        try {
            if (folder == files.regions()) {
                Files.setPosixFilePermissions(folder.path(name), PosixFilePermissions.fromString("rw-rw-rw-"));
            }
            folder.openWaiting(name);
        } catch (IOException e) {
            // The agent has no capabilities, so it cannot if the container has given the file to another user.
            LOG.log(Level.DEBUG, "Cannot open the file of {0}: {1}", name, e.toString());
        }
    }

    /**
     * Names the container, or removes its region if it is gone.
     *
     * @param file the region's if it is open and cannot be cut
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
        if (holder.isEmpty() && holders instanceof DeviceHolders.Known) {
            try {
                files.regions().remove(slot, file); // a cut one is open, so it stays
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
