package io.aliquot.deviceplugin.cdi;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** How the containers of a node get their GPUs and their limits. */
public enum DeviceInjection {
    /** GPUs from NVIDIA's runtime, by {@code NVIDIA_VISIBLE_DEVICES}; limits from the mounts of Allocate's answer. */
    RUNTIME,

    /** Both from one CDI device that Allocate's answer names, so that no container has the one without the other. */
    CDI;

    private static final int FIRST_WITH_CDI = 2;
    private static final Pattern CONTAINERD = Pattern.compile("containerd://v?([0-9]{1,6})[.].*");

    /**
     * Whether a container runtime resolves CDI names unless it is told otherwise: containerd since 2.0
     * (internal/cri/config/config_unix.go), CRI-O in all versions of Kubernetes that Aliquot supports.
     *
     * @param runtime {@code Node.status.nodeInfo.containerRuntimeVersion}
     */
    public static boolean isResolvedBy(String runtime) {
        Matcher containerd = CONTAINERD.matcher(runtime);
        return containerd.matches()
                ? Integer.parseInt(containerd.group(1)) >= FIRST_WITH_CDI
                : runtime.startsWith("cri-o://");
    }
}
