package io.aliquot.scheduler.admission;

import io.aliquot.api.shim.ContainerPaths;
import java.util.List;
import java.util.Optional;
import java.util.regex.Pattern;

/** The paths of the files that limit a container. A user's mount on, above or below one of them would remove limits. */
final class ReservedPaths {
    private static final List<String> RESERVED =
            List.of(ContainerPaths.CONFIG_FOLDER, ContainerPaths.PRELOAD, ContainerPaths.SHIM_FOLDER);
    /** {@code //}, {@code /./}, {@code /../}, also at the end. The policy in the API server (CEL) cannot resolve them. */
    private static final Pattern NOT_NORMALIZED = Pattern.compile("//|/\\.\\.?(/|$)");

    private ReservedPaths() {}

    /**
     * A path in the container at which the user's pod puts something.
     *
     * @param field the field of the container that states the path
     * @param path as written; a relative one starts at the root (pkg/kubelet/kubelet_pods.go, makeMounts)
     */
    record UserPath(String field, String path) {}

    /** Whether a mount at this path is Aliquot's, or refused. */
    static boolean concerns(String path) {
        return conflict(new UserPath("", path)).isPresent();
    }

    /** Why the path is refused and what to write instead; empty if it is allowed. */
    static Optional<String> conflict(UserPath user) {
        String path = user.path().startsWith("/") ? user.path() : "/" + user.path();
        if (NOT_NORMALIZED.matcher(path).find()) {
            return Optional.of("write " + user.field() + " " + user.path() + " without \"//\", \"/./\" and \"/../\"");
        }
        String folder = path.endsWith("/") ? path : path + "/";
        return RESERVED.stream()
                .filter(reserved -> (reserved + "/").startsWith(folder) || folder.startsWith(reserved + "/"))
                .findFirst()
                .map(reserved -> user.field() + " " + user.path() + " would cover " + reserved
                        + ", which enforces the container's limits; choose another path");
    }
}
