package io.aliquot.scheduler.server;

import java.util.Set;

/**
 * What one port answers.
 *
 * @param paths exactly, as sent
 * @param largestBody in bytes
 */
record Door(Set<String> paths, int largestBody) {
    /** 8 MiB: a pod (1.5 MiB at most in etcd) and the names of 20,000 nodes. */
    static final Door EXTENDER = new Door(Set.of("/filter", "/prioritize", "/bind", "/preempt"), 8 << 20);
    /** 4 MiB: the API server itself accepts no request over 3 (k8s.io/apiserver, MaxRequestBodyBytes). */
    static final Door WEBHOOKS = new Door(Set.of("/admission/gpu", "/admission/void"), 4 << 20);

    static final Door HEALTH = new Door(Set.of("/livez", "/readyz", "/metrics"), 0);

    Door {
        paths = Set.copyOf(paths);
    }
}
