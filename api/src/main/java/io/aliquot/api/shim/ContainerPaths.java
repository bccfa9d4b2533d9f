package io.aliquot.api.shim;

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

    private ContainerPaths() {}
}
