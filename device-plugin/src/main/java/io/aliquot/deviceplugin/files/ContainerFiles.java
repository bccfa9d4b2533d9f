package io.aliquot.deviceplugin.files;

import io.aliquot.api.shim.AgentFile;
import io.aliquot.api.shim.Region;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;

/**
 * Files on the host of which each slot has one, named by the slot. Allocate replaces a slot's file; nothing removes it,
 * because the kubelet repeats Allocate's answer, which names it, at each restart of a container, even after a reboot.
 */
public final class ContainerFiles extends HeldFiles {
    // A container may run as any user.
    private static final String WRITABLE_BY_ALL = "rw-rw-rw-";
    private static final String READABLE_BY_ALL = "rw-r--r--";
    private static final String TEMPORARY = ".new";

    private final ByteBuffer content;
    private final Set<PosixFilePermission> permissions;

    private ContainerFiles(Path folder, byte[] content, String permissions) throws IOException {
        super(folder, "slot-*", true);
        this.content = ByteBuffer.allocateDirect(content.length).put(content);
        this.permissions = PosixFilePermissions.fromString(permissions);
        Files.createDirectories(folder);
        try (DirectoryStream<Path> incomplete = Files.newDirectoryStream(folder, ".*" + TEMPORARY)) {
            for (Path file : incomplete) {
                Files.delete(file); // left by a killed process
            }
        }
    }

    /** The containers' regions, which their processes write. Creates their folder. */
    public static ContainerFiles regions(Path stateDir) throws IOException {
        return new ContainerFiles(regionsFolder(stateDir), Region.fresh(), WRITABLE_BY_ALL);
    }

    /** What this agent tells the processes of containers, which can only read it. Creates the files' folder. */
    public static ContainerFiles ofAgent(Path stateDir) throws IOException {
        return new ContainerFiles(agentFolder(stateDir), AgentFile.fresh(), READABLE_BY_ALL);
    }

    /** The folder of the regions by slot. */
    public static Path regionsFolder(Path stateDir) {
        return stateDir.resolve("slots");
    }

    /** The folder of the agent's files by slot. */
    public static Path agentFolder(Path stateDir) {
        return stateDir.resolve("agent");
    }

    /**
     * Replaces a slot's file by one as at the start of a container. All bytes are written, so that the file has no sparse
     * hole: a process that touches a hole of a mapping while the disk is full dies of SIGBUS.
     *
     * @return the path on the host
     */
    public Path replace(String slot) throws IOException {
        Path file = path(slot);
        Path temporary = path("." + slot + TEMPORARY);
        Files.deleteIfExists(temporary);
        try (var channel = FileChannel.open(temporary, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            ByteBuffer bytes = content.duplicate().rewind();
            while (bytes.hasRemaining()) {
                channel.write(bytes);
            }
        }
        Files.setPosixFilePermissions(temporary, permissions);
        if (Files.isDirectory(file, LinkOption.NOFOLLOW_LINKS)) {
            // containerd creates a folder for a mount whose source is missing (internal/cri/opts/spec_linux_opts.go).
            Files.delete(file);
        }
        replace(slot, temporary);
        return file;
    }
}
