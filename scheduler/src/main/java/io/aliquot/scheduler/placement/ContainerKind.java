package io.aliquot.scheduler.placement;

/** When a container runs, which decides with whom it shares what its pod is given. */
public enum ContainerKind {
    /** An init container that ends before the next one starts. */
    INIT,
    /** An init container with {@code restartPolicy: Always}: runs on beside those after it. */
    SIDECAR,
    /** An ordinary container. */
    APP
}
