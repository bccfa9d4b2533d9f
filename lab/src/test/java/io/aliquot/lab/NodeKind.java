package io.aliquot.lab;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/** The kinds of the lab's nodes whose GPUs Aliquot shares, by what gives a container its GPU (lab/node.sh). */
enum NodeKind {
    /** NVIDIA's runtime, which is the default runtime of containerd 1. */
    DEFAULT_RUNTIME,
    /** NVIDIA's runtime in containerd 1, where only a RuntimeClass names it: see {@link RuntimeClassNode}. */
    RUNTIME_CLASS,
    /** containerd 2, which injects CDI devices. NVIDIA's runtime is a handler that only a RuntimeClass names. */
    CDI,
    /** As {@link #CDI}, in the virtual machine, which has systemd and cgroup v2. */
    CDI_SYSTEMD;

    /**
     * The node of the test class is of the first of these kinds, or of the one that {@code -Daliquot.kind} names, if it is one
     * of them. A class without this annotation runs on whichever of {@link Lab#nodes()} is free, or on the node of the named kind.
     */
    @Target(ElementType.TYPE)
    @Retention(RetentionPolicy.RUNTIME)
    @interface Required {
        NodeKind[] value();
    }
}
