package io.aliquot.api;

/** Paths inside a container that is given vGPUs. Nobody else may mount anything on, above or below them. */
public final class ContainerPaths {
    /** Folder of the limit file; a downward-API volume mounted whole, so that it refreshes. */
    public static final String CONFIG_FOLDER = "/etc/aliquot";

    /** Name of the limit file in {@link #CONFIG_FOLDER}. */
    public static final String LIMIT_FILE = "vgpu";

    /** What the dynamic linker loads into every process. */
    public static final String PRELOAD = "/etc/ld.so.preload";

    /** Parent of the shim ({@code <version>/libaliquot.so}) and of the region. */
    public static final String SHIM_FOLDER = "/usr/local/aliquot";

    /** The state file: memory that the container's processes share for accounting. */
    public static final String REGION = SHIM_FOLDER + "/region";

    private ContainerPaths() {}
}
