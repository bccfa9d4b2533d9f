package io.aliquot.api.shim;

import io.aliquot.api.names.Annotations;

/** Paths inside a container that has vGPUs. The webhook refuses a user's mount on, above or below them. */
public final class ContainerPaths {
    /**
     * Folder of the limit file. The downward-API volume is mounted without a subPath, because the kubelet updates only
     * such mounts.
     */
    public static final String CONFIG_FOLDER = "/etc/aliquot";

    /** Name of the limit file in {@link #CONFIG_FOLDER}. */
    public static final String LIMIT_FILE = "vgpu";

    /** Names the libraries that the dynamic linker loads into every process. */
    public static final String PRELOAD = "/etc/ld.so.preload";

    /** Folder of the shim ({@code <version>/libaliquot.so}), of the region and of the agent's file. */
    public static final String SHIM_FOLDER = "/usr/local/aliquot";

    /** The {@link Region}. */
    public static final String REGION = SHIM_FOLDER + "/region";

    /** The {@link AgentFile}, which programs in the container cannot write. */
    public static final String AGENT = SHIM_FOLDER + "/agent";

    /**
     * How the names of the volumes begin that are mounted at {@link #CONFIG_FOLDER}. Leaves 50 of the 63 characters of a
     * volume's name; the end of an annotation's key has at most 46.
     */
    public static final String LIMIT_FILE_VOLUMES = "aliquot-vgpu-";

    private ContainerPaths() {}

    /** The name of the pod's volume that is mounted at {@link #CONFIG_FOLDER} of a container. */
    public static String limitFileVolume(String container) {
        return LIMIT_FILE_VOLUMES + Annotations.vgpu(container).substring(Annotations.VGPU_PREFIX.length());
    }
}
