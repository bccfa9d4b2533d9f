package io.aliquot.deviceplugin.cdi;

/**
 * A file of the host in a container.
 *
 * @param hostPath absolute
 * @param containerPath absolute
 */
public record BindMount(String hostPath, String containerPath, boolean readOnly) {}
