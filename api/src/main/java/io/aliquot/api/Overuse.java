package io.aliquot.api;

import java.util.regex.Pattern;

/**
 * A container that uses more memory of a GPU than its limit, because it bypasses the shim.
 *
 * @param pod its namespace and name, such as {@code team/train}
 * @param container the container's name
 * @param gpu the GPU's UUID
 * @param usedMiB memory in use by NVML's figures, more than {@code limitMiB}, at most {@value Vgpu#LARGEST_MIB}
 * @param limitMiB the container's limit on that GPU, at least 1
 */
public record Overuse(String pod, String container, String gpu, int usedMiB, int limitMiB) {
    // Kubernetes: object names and names of containers.
    private static final Pattern POD = Pattern.compile("[a-z0-9-]{1,63}/[a-z0-9.-]{1,253}");
    private static final Pattern CONTAINER = Pattern.compile("[a-z0-9-]{1,63}");

    public Overuse {
        if (!POD.matcher(pod).matches()) {
            throw FormatException.expected("a pod's namespace/name", pod);
        }
        if (!CONTAINER.matcher(container).matches()) {
            throw FormatException.expected("a container's name", container);
        }
        GpuUuids.check(gpu);
        if (limitMiB < 1 || usedMiB <= limitMiB || usedMiB > Vgpu.LARGEST_MIB) {
            throw FormatException.expected(
                    "a limit of at least 1 MiB and more memory in use, at most " + Vgpu.LARGEST_MIB + " MiB",
                    usedMiB + " of " + limitMiB);
        }
    }
}
