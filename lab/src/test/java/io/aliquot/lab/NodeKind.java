package io.aliquot.lab;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * The kinds of the lab's nodes whose GPUs Aliquot shares, by what gives a container its GPU (lab/node.sh); the columns of the
 * {@linkplain SupportMatrix table of what ran where}.
 */
enum NodeKind {
    /** NVIDIA's runtime, which is the default runtime of containerd 1. */
    DEFAULT_RUNTIME("default runtime"),
    /** NVIDIA's runtime in containerd 1, where only a RuntimeClass names it: see {@link RuntimeClassNode}. */
    RUNTIME_CLASS("RuntimeClass"),
    /** containerd 2, which injects CDI devices. NVIDIA's runtime is a handler that only a RuntimeClass names. */
    CDI("CDI"),
    /** The virtual machine, which has systemd and cgroup v2; as {@link #CDI}, unless a test changes it. */
    VIRTUAL_MACHINE("virtual machine");

    /** In the documentation. */
    final String title;

    NodeKind(String title) {
        this.title = title;
    }

    /**
     * The node of the test class is of the first of these kinds, or of the one that {@code -Daliquot.kind} names, if it is one
     * of them. A class without this annotation runs on whichever of {@link Lab#nodes()} is free, or on the node of the named kind.
     */
    @Target(ElementType.TYPE)
    @Retention(RetentionPolicy.RUNTIME)
    @interface Required {
        NodeKind[] value();

        /** Why the class is skipped on nodes of other kinds, for the documentation. */
        String because();
    }
}
