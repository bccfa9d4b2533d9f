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
 * The containers' state files, {@code <state>/slots/<slot>}. A slot's file is replaced when its slot is given away again
 * and never removed: the kubelet replays Allocate's answer, which names it, at each restart of a container, also after a
 * reboot.
 */
final class RegionFiles {
    // A container may run as any user.
    private static final Set<PosixFilePermission> WRITABLE_BY_ALL = PosixFilePermissions.fromString("rw-rw-rw-");
    private static final String TEMPORARY = ".new";

    private final Path folder;
    private final ByteBuffer fresh = ByteBuffer.allocateDirect(Region.SIZE);

    /** Makes the folder, and takes away what a killed run left half-written. */
    RegionFiles(Path state) throws IOException {
        folder = state.resolve("slots");
        Files.createDirectories(folder);
        try (DirectoryStream<Path> halves = Files.newDirectoryStream(folder, ".*" + TEMPORARY)) {
            for (Path half : halves) {
                Files.delete(half);
            }
        }
        fresh.put(Region.fresh());
    }

    /**
     * Puts an unused state file in the slot's place. All its bytes are written, not left as a hole: a process of the
     * container that touches a hole of its mapping while the disk is full dies of SIGBUS.
     *
     * @return its path on the host
     */
    Path renew(String slot) throws IOException {
        Path file = folder.resolve(slot);
        Path temporary = folder.resolve("." + slot + TEMPORARY);
        try (var channel = FileChannel.open(
                temporary,
                StandardOpenOption.CREATE,
                StandardOpenOption.TRUNCATE_EXISTING,
                StandardOpenOption.WRITE,
                LinkOption.NOFOLLOW_LINKS)) {
            ByteBuffer content = fresh.duplicate().rewind();
            while (content.hasRemaining()) {
                channel.write(content);
            }
        }
        Files.setPosixFilePermissions(temporary, WRITABLE_BY_ALL);
        if (Files.isDirectory(file, LinkOption.NOFOLLOW_LINKS)) {
            // containerd makes a folder of a mount's missing source (internal/cri/opts/spec_linux_opts.go).
            Files.delete(file);
        }
        Files.move(temporary, file, StandardCopyOption.ATOMIC_MOVE);
        return file;
    }
}
