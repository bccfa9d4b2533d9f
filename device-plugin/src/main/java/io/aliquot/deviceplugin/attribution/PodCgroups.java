package io.aliquot.deviceplugin.attribution;

import io.aliquot.api.nodes.Inventory;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

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

    private static final int MOST_PROCESSES = 500;

    private final Path root;

    /** Set once; null until a pod's is seen. */
    private volatile @Nullable String kind;

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
        return pods().map(pods -> Set.copyOf(pods.keySet())).filter(found -> !found.isEmpty());
    }

    /** Their version and the driver that names them, as {@code Inventory.cgroups} has them. */
    public String kind() {
        String known = kind;
        if (known == null) {
            known = pods().orElse(Map.of()).values().stream()
                    .findAny()
                    .map(this::kind)
                    .orElse(null);
            kind = known;
        }
        return Objects.requireNonNullElse(known, Inventory.HIDDEN_CGROUPS);
    }

    /** The kubelet's systemd driver names slices; the root of version 2 lists its controllers (kernel, cgroup-v2.rst). */
    private String kind(Path pod) {
        return (Files.exists(root.resolve("cgroup.controllers")) ? "v2 " : "v1 ")
                + (pod.toString().endsWith(".slice") ? "systemd" : "cgroupfs");
    }

    /** The cgroups of the containers of these pods, sandboxes included. CRI-O's conmon is a process of the host. */
    public Map<ContainerId, Path> containers(Set<String> uids) {
        Map<ContainerId, Path> containers = new HashMap<>();
        Map<String, Path> pods = pods().orElse(Map.of());
        for (Path pod :
                uids.stream().flatMap(uid -> Stream.ofNullable(pods.get(uid))).toList()) {
            try (Stream<Path> children = Files.list(pod)) {
                children.filter(child -> !child.toString().contains("conmon"))
                        .forEach(child ->
                                ContainerId.parse(child.toString()).ifPresent(id -> containers.put(id, child)));
            } catch (IOException | UncheckedIOException e) {
                // removed meanwhile
            }
        }
        return containers;
    }

    /** Processes of a container; none if it has divided its cgroup, for which containers have no right by default. */
    public static List<Integer> processes(Path container) {
        try (Stream<String> lines = Files.lines(container.resolve("cgroup.procs"))) {
            return lines.limit(MOST_PROCESSES).map(Integer::valueOf).toList();
        } catch (IOException | UncheckedIOException | NumberFormatException e) {
            return List.of(); // removed meanwhile
        }
    }

    /** By UID; of version 1 those of one controller. */
    private Optional<Map<String, Path>> pods() {
        Map<String, Path> pods = new HashMap<>();
        try {
            find(root, DEEPEST, pods);
        } catch (IOException e) {
            return Optional.empty();
        }
        return Optional.of(pods);
    }

    /** Does not look into a pod's cgroup, where a container may make others with any name. */
    private static void find(Path folder, int depth, Map<String, Path> pods) throws IOException {
        try (DirectoryStream<Path> folders = Files.newDirectoryStream(folder, PodCgroups::isFolder)) {
            for (Path child : folders) {
                Matcher pod = POD.matcher(child.getFileName().toString());
                if (pod.find()) {
                    pods.putIfAbsent(pod.group(1).replace('_', '-'), child);
                } else if (depth > 1) {
                    find(child, depth - 1, pods);
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
