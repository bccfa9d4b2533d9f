package io.aliquot.deviceplugin.kubelet;

import io.aliquot.api.Region;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;

/**
 * The regions of the containers on the host, {@code <state>/slots/<slot>}. Allocate replaces a slot's file; nothing
 * removes it, because the kubelet repeats Allocate's answer, which names it, at each restart of a container, even after
 * a reboot.
 */
final class RegionFiles {
    // A container may run as any user.
    private static final Set<PosixFilePermission> WRITABLE_BY_ALL = PosixFilePermissions.fromString("rw-rw-rw-");
    private static final String TEMPORARY = ".new";

    private final Path folder;
    private final ByteBuffer emptyRegion = ByteBuffer.allocateDirect(Region.SIZE);

    /** Creates the folder, and removes incomplete files that a killed process left. */
    RegionFiles(Path stateDir) throws IOException {
        folder = stateDir.resolve("slots");
        Files.createDirectories(folder);
        try (DirectoryStream<Path> incomplete = Files.newDirectoryStream(folder, ".*" + TEMPORARY)) {
            for (Path file : incomplete) {
                Files.delete(file);
            }
        }
        emptyRegion.put(Region.fresh());
    }

    /**
     * Replaces a slot's region by an empty one. All bytes are written, so that the file has no sparse hole: a process
     * that touches a hole of a mapping while the disk is full dies of SIGBUS.
     *
     * @return the path on the host
     */
    Path replace(String slot) throws IOException {
        Path file = folder.resolve(slot);
        Path temporary = folder.resolve("." + slot + TEMPORARY);
        try (var channel = FileChannel.open(
                temporary,
                StandardOpenOption.CREATE,
                StandardOpenOption.TRUNCATE_EXISTING,
                StandardOpenOption.WRITE,
                LinkOption.NOFOLLOW_LINKS)) {
            ByteBuffer content = emptyRegion.duplicate().rewind();
            while (content.hasRemaining()) {
                channel.write(content);
            }
        }
        Files.setPosixFilePermissions(temporary, WRITABLE_BY_ALL);
        if (Files.isDirectory(file, LinkOption.NOFOLLOW_LINKS)) {
            // containerd creates a folder for a mount whose source is missing (internal/cri/opts/spec_linux_opts.go).
            Files.delete(file);
        }
        Files.move(temporary, file, StandardCopyOption.ATOMIC_MOVE);
        return file;
    }
}
