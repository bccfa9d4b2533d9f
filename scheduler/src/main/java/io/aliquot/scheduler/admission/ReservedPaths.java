package io.aliquot.scheduler.admission;

import io.aliquot.api.ContainerPaths;
import java.util.List;
import java.util.Optional;
import java.util.regex.Pattern;

/** The paths by which a container is limited. Whoever mounts something over them lifts the limits. */
final class ReservedPaths {
    private static final List<String> RESERVED =
            List.of(ContainerPaths.CONFIG_FOLDER, ContainerPaths.PRELOAD, ContainerPaths.SHIM_FOLDER);
    /** {@code //}, {@code /./} and {@code /../}, at the end too: the policy in the API server, CEL, can't resolve them. */
    private static final Pattern ROUNDABOUT = Pattern.compile("//|/\\.\\.?(/|$)");

    private ReservedPaths() {}

    /**
     * Something of the user's in the container's file system.
     *
     * @param field that says so
     * @param path as written; the kubelet takes a relative one from the root (pkg/kubelet/kubelet_pods.go, makeMounts)
     */
    record Place(String field, String path) {}

    /** What to write instead, where this place is not to be had. */
    static Optional<String> objection(Place place) {
        String path = place.path().startsWith("/") ? place.path() : "/" + place.path();
        if (ROUNDABOUT.matcher(path).find()) {
            return Optional.of("write " + place.field() + " " + place.path() + " without \"//\", \"/./\" and \"/../\"");
        }
        String folder = path.endsWith("/") ? path : path + "/";
        return RESERVED.stream()
                .filter(reserved -> (reserved + "/").startsWith(folder) || folder.startsWith(reserved + "/"))
                .findFirst()
                .map(reserved -> place.field() + " " + place.path() + " would cover " + reserved
                        + ", by which the container's share is enforced; choose another path");
    }
}
