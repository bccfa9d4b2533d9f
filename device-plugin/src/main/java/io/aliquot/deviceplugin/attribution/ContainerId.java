package io.aliquot.deviceplugin.attribution;

import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A container as the kernel's cgroups name it.
 *
 * @param podUid the pod's UID; of a static pod the hash of its manifest
 * @param id the runtime's ID of the container, 64 hexadecimal digits
 */
public record ContainerId(String podUid, String id) {
    // The kubelet names a pod's cgroup pod<uid>, and with the driver systemd kubepods-<qos>-pod<uid>.slice, where the
    // UID has
    // _ for - (pkg/kubelet/cm/cgroup_manager_linux.go, pod_container_manager_linux.go). The runtime's own is <id>, or
    // with systemd cri-containerd-<id>.scope and crio-<id>.scope.
    private static final Pattern PATH =
            Pattern.compile("pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
                    + "(?:\\.slice)?[/:](?:[a-z-]+[-:])?([0-9a-f]{64})(?:\\.scope)?(?:/.*)?$");

    /**
     * Reads the container from a process's {@code /proc/PID/cgroup}, of version 1 or 2; empty if the process is in no
     * container of a pod.
     */
    static Optional<ContainerId> parse(String cgroups) {
        return cgroups.lines()
                .map(PATH::matcher)
                .filter(Matcher::find)
                .map(path -> new ContainerId(path.group(1).replace('_', '-'), path.group(2)))
                .findFirst();
    }
}
