package io.aliquot.deviceplugin.usage;

import io.aliquot.api.names.Resources;
import io.aliquot.api.shim.Region;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport.Problem.LargeRegion;
import io.aliquot.deviceplugin.kubelet.ContainerFiles;
import io.aliquot.deviceplugin.kubelet.DeviceHolders;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Supplier;

/**
 * Keeps regions at their size. A region is an ordinary file of the host that the processes of its container can write, so
 * they could fill the node's disk with it. A process that maps a region loses nothing when the rest is cut off.
 */
public final class LargeRegions {
    private static final Logger LOG = System.getLogger(LargeRegions.class.getName());

    private static final LinkOption NO_LINKS = LinkOption.NOFOLLOW_LINKS;

    private final Path folder;
    private final Supplier<DeviceHolders> podResources;
    private final RecentFindings findings;

    /** When each region's inode last changed, as of the latest run. */
    private Map<Path, Object> changedAt = new HashMap<>();

    /**
     * Looks at nothing yet.
     *
     * @param stateDir Aliquot's folder on the host
     * @param podResources asks the kubelet which containers hold slots
     * @param findings gets the regions that were too large
     */
    public LargeRegions(Path stateDir, Supplier<DeviceHolders> podResources, RecentFindings findings) {
        folder = ContainerFiles.regionsFolder(stateDir);
        this.podResources = podResources;
        this.findings = findings;
    }

    /** Cuts regions that are too large, and removes those of them that no container holds. Not thread-safe. */
    public void run() {
        Map<Path, Object> changed = new HashMap<>();
        try (DirectoryStream<Path> regions = Files.newDirectoryStream(folder, "slot-*")) {
            for (Path region : regions) {
                try {
                    if (check(region)) {
                        changed.put(region, ctime(region));
                    }
                } catch (IOException e) {
                    LOG.log(Level.DEBUG, "Cannot check the region {0}: {1}", region, e.toString());
                }
            }
        } catch (IOException e) {
            LOG.log(Level.DEBUG, "Cannot list {0}: {1}", folder, e.toString());
        }
        changedAt = changed;
    }

    /** Returns whether the next run need not look at the region unless it changes. */
    private boolean check(Path region) throws IOException {
        if (!Files.isRegularFile(region, NO_LINKS)) {
            return false; // only the host's root can have put it there
        }
        long size = Files.size(region);
        if (size < Region.SIZE) {
            return true;
        }
        // fallocate(2) takes space beyond the end without changing the length, and the length set again frees it.
        boolean unchanged = size == Region.SIZE && ctime(region).equals(changedAt.get(region));
        if (unchanged || (size == Region.SIZE && cut(region))) {
            return true;
        }
        report(region, size);
        return false;
    }

    private static Object ctime(Path region) throws IOException {
        return Files.getAttribute(region, "unix:ctime", NO_LINKS);
    }

    private void report(Path region, long size) throws IOException {
        String slot = Objects.toString(region.getFileName());
        DeviceHolders holders = podResources.get();
        Optional<PodContainer> holder = holder(holders, slot);
        if (holder.isEmpty() && holders instanceof DeviceHolders.Known) {
            LOG.log(Level.WARNING, "Removing {0}, which has {1} bytes, and whose container is gone", region, size);
            Files.delete(region);
            return;
        }
        boolean cut = cut(region);
        LOG.log(
                Level.WARNING,
                "The container {0} made its region {1} bytes large or took it from the agent: {2}",
                holder.map(PodContainer::toString).orElse("of " + slot),
                size,
                cut ? "cut to its size" : "it cannot be cut");
        holder.ifPresent(container -> findings.add(container, new LargeRegion(size, cut)));
    }

    /**
     * Sets the length. The agent has no capabilities, so it cannot if the container has given the file to another user and
     * closed it.
     */
    private static boolean cut(Path region) {
        try {
            if (!Files.isWritable(region)) {
                Files.setPosixFilePermissions(region, PosixFilePermissions.fromString("rw-rw-rw-"));
            }
            try (var file = new RandomAccessFile(region.toFile(), "rw")) {
                file.setLength(Region.SIZE);
            }
            return true;
        } catch (IOException e) {
            LOG.log(Level.DEBUG, "Cannot cut {0}: {1}", region, e.toString());
            return false;
        }
    }

    private static Optional<PodContainer> holder(DeviceHolders holders, String slot) {
        return holders instanceof DeviceHolders.Known known
                ? known.list().stream()
                        .filter(holder -> holder.resource().equals(Resources.VGPU)
                                && holder.deviceIds().contains(slot))
                        .map(LargeRegions::container)
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
