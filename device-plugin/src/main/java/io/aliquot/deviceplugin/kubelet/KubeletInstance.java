package io.aliquot.deviceplugin.kubelet;

import java.nio.file.attribute.FileTime;

/**
 * Identifies one run of the kubelet by its socket. The modification time is part of the identity because inode numbers
 * are reused soon.
 */
record KubeletInstance(String fileKey, FileTime lastModified) {}
