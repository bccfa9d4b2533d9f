package io.aliquot.scheduler.server;

import java.util.Set;

/**
 * What one port answers.
 *
 * @param paths exactly, as sent
 * @param below whatever path begins with it, too; empty for none
 * @param largestBody in bytes
 */
record Door(Set<String> paths, String below, int largestBody) {
    /** 8 MiB: a pod (1.5 MiB at most in etcd) and the names of 20,000 nodes. */
    static final Door EXTENDER = new Door(Set.of("/filter", "/prioritize", "/bind", "/preempt"), "", 8 << 20);
    /** 4 MiB: the API server itself accepts no request over 3 (k8s.io/apiserver, MaxRequestBodyBytes). */
    static final Door WEBHOOKS = new Door(Set.of("/admission/gpu", "/admission/void"), "", 4 << 20);

    static final Door HEALTH = new Door(Set.of("/livez", "/readyz", "/metrics"), "", 0);
    /** 256 KiB: new shares of a pod's containers on all GPUs of a node. */
    static final Door API = new Door(Set.of(), Problems.API, 256 << 10);

    Door {
        paths = Set.copyOf(paths);
    }

    boolean answers(String path) {
        return paths.contains(path) || (!below.isEmpty() && path.startsWith(below));
    }
}
