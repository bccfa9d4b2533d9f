package io.aliquot.scheduler.placement;

/** When a container runs, and so with which containers of its pod it can reuse capacity. */
public enum ContainerKind {
    /** An init container that ends before the next container starts. */
    INIT,
    /** A sidecar: an init container with {@code restartPolicy: Always}, which runs beside all later containers. */
    SIDECAR,
    /** An app container; runs beside all other app containers and the sidecars. */
    APP
}
