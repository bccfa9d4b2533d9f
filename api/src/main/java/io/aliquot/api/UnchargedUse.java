package io.aliquot.api;

import java.util.regex.Pattern;

/**
 * A container that uses memory of a GPU which the shim has not charged, so that it bypasses the shim or the shim's
 * accounting is wrong. The node agent does not know the container's limit; the scheduler compares.
 *
 * @param pod its namespace and name, such as {@code team/train}
 * @param container the container's name
 * @param gpu the GPU's UUID
 * @param usedMiB all its memory by NVML's figures, 1 to {@value Vgpu#LARGEST_MIB}
 */
public record UnchargedUse(String pod, String container, String gpu, int usedMiB) {
    // Kubernetes: object names and names of containers.
    private static final Pattern POD = Pattern.compile("[a-z0-9-]{1,63}/[a-z0-9.-]{1,253}");
    private static final Pattern CONTAINER = Pattern.compile("[a-z0-9-]{1,63}");

    public UnchargedUse {
        if (!POD.matcher(pod).matches()) {
            throw FormatException.expected("a pod's namespace/name", pod);
        }
        if (!CONTAINER.matcher(container).matches()) {
            throw FormatException.expected("a container's name", container);
        }
        GpuUuids.check(gpu);
        if (usedMiB < 1 || usedMiB > Vgpu.LARGEST_MIB) {
            throw FormatException.expected("usedMiB from 1 to " + Vgpu.LARGEST_MIB, Integer.toString(usedMiB));
        }
    }
}
