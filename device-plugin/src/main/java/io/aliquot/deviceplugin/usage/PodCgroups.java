package io.aliquot.deviceplugin.usage;

import java.io.IOException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Which pods have a cgroup on this node, of either version. The kubelet makes a pod's cgroup before anything else of the
 * pod, and removes it after the pod's last process; a pod cannot rename or leave it. PodResources is no proof of either,
 * since it leaves out init containers. Thread-safe.
 */
public final class PodCgroups {
    /** As in {@link ContainerId}. */
    private static final Pattern POD =
            Pattern.compile("(?:^|-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\\.slice)?$");

    /** A controller of version 1, the kubelet's root, and kubepods, its class and the pod; the rest is for nodes in containers. */
    private static final int DEEPEST = 9;

    private final Path root;

    /**
     * Reads nothing yet.
     *
     * @param root the host's {@code /sys/fs/cgroup}
     */
    public PodCgroups(Path root) {
        this.root = root;
    }

    /** The UIDs; empty if that cannot be told, as where no pod has one, since the agent itself is in a pod. */
    public Optional<Set<String>> uids() {
        var uids = new HashSet<String>();
        try {
            find(root, DEEPEST, uids);
        } catch (IOException e) {
            return Optional.empty();
        }
        return Optional.of(uids).filter(found -> !found.isEmpty()).map(Set::copyOf);
    }

    /** Does not look into a pod's cgroup, where a container may make others with any name. */
    private static void find(Path folder, int depth, Set<String> uids) throws IOException {
        try (DirectoryStream<Path> folders = Files.newDirectoryStream(folder, PodCgroups::isFolder)) {
            for (Path child : folders) {
                Matcher pod = POD.matcher(child.getFileName().toString());
                if (pod.find()) {
                    uids.add(pod.group(1).replace('_', '-'));
                } else if (depth > 1) {
                    find(child, depth - 1, uids);
                }
            }
        } catch (NoSuchFileException e) {
            // removed meanwhile, with all below it
        } catch (DirectoryIteratorException e) {
            throw e.getCause();
        }
    }

    /** Links name a controller of version 1 a second time. */
    private static boolean isFolder(Path path) {
        return Files.isDirectory(path, LinkOption.NOFOLLOW_LINKS);
    }
}
