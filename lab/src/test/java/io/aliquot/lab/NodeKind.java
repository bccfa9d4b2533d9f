package io.aliquot.lab;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/** The kinds of the lab's nodes whose GPUs Aliquot shares, by what gives a container its GPU (lab/node.sh). */
enum NodeKind {
    /** NVIDIA's runtime, which is the default runtime of containerd 1. */
    DEFAULT_RUNTIME,
    /** containerd 2, which injects CDI devices. NVIDIA's runtime is a handler that only a RuntimeClass names. */
    CDI;

    /** The node of the test class is of this kind. Without this annotation it is of any. */
    @Target(ElementType.TYPE)
    @Retention(RetentionPolicy.RUNTIME)
    @interface Required {
        NodeKind value();
    }
}
