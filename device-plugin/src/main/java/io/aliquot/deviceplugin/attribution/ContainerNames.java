package io.aliquot.deviceplugin.attribution;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/**
 * The names of containers by their IDs, from the links that the kubelet makes to each container's log:
 * {@code /var/log/containers/POD_NAMESPACE_CONTAINER-ID.log}, to {@code /var/log/pods/NAMESPACE_POD_UID/CONTAINER/N.log}
 * (pkg/kubelet/kuberuntime, legacy.go and helpers.go). They include init containers, and need no right in the API server.
 *
 * <p>Not thread-safe.
 */
public final class ContainerNames {
    private static final String SUFFIX = ".log";

    /** The kubelet cuts a link's name to this length, and so the ID of a container with long names. */
    private static final int LONGEST_NAME = 255;

    private static final int SHORTEST_ID = 12;
    private static final int MOST_KNOWN = 4096;

    private final Path links;
    private final Map<ContainerId, ContainerName> known = new HashMap<>();

    /**
     * Reads nothing yet.
     *
     * @param links the kubelet's folder, {@code /var/log/containers}
     */
    public ContainerNames(Path links) {
        this.links = links;
    }

    /** The name of a container; empty if the kubelet has no link for it, as before its start. */
    public Optional<ContainerName> find(ContainerId container) {
        ContainerName name = known.get(container);
        if (name != null) {
            return Optional.of(name);
        }
        Optional<ContainerName> found = read(container);
        if (known.size() >= MOST_KNOWN) {
            known.clear(); // those of ended containers; the others are read again
        }
        found.ifPresent(read -> known.put(container, read));
        return found;
    }

    private Optional<ContainerName> read(ContainerId container) {
        try (DirectoryStream<Path> candidates = Files.newDirectoryStream(links, link -> mayBe(link, container))) {
            for (Path link : candidates) {
                Optional<ContainerName> name = target(link, container);
                if (name.isPresent()) {
                    return name;
                }
            }
        } catch (IOException e) {
            return Optional.empty(); // the folder appears with the node's first container
        }
        return Optional.empty();
    }

    private static boolean mayBe(Path link, ContainerId container) {
        String name = link.getFileName().toString();
        if (!name.endsWith(SUFFIX)) {
            return false;
        }
        String id = name.substring(name.lastIndexOf('-') + 1, name.length() - SUFFIX.length());
        return id.equals(container.id())
                || (name.length() == LONGEST_NAME
                        && id.length() >= SHORTEST_ID
                        && container.id().startsWith(id));
    }

    private static Optional<ContainerName> target(Path link, ContainerId container) {
        try {
            Path target = Files.readSymbolicLink(link);
            int names = target.getNameCount();
            String[] pod = names < 3
                    ? new String[0]
                    : target.getName(names - 3).toString().split("_", -1);
            return pod.length == 3 && pod[2].equals(container.podUid())
                    ? Optional.of(new ContainerName(
                            pod[0], pod[1], target.getName(names - 2).toString()))
                    : Optional.empty();
        } catch (IOException e) {
            return Optional.empty(); // removed since
        }
    }
}
