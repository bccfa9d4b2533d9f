package io.aliquot.deviceplugin.shim;

import io.aliquot.api.shim.ContainerPaths;
import io.aliquot.deviceplugin.files.HeldFile;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The shim as installed on the host in {@code <state>/shim/<version>}: the library, the file that makes the dynamic
 * linker load it, and the hook that sees both in a container before its start. What containers mount of a version never
 * changes, because a version ends with the library's hash. Old versions stay, because the kubelet repeats Allocate's
 * answers, which name them, at each restart of a container.
 *
 * @param version content of {@code VERSION}
 * @param library path of {@code libaliquot.so} on the host
 * @param preload path on the host of the file to mount at {@link ContainerPaths#PRELOAD}
 * @param hook path on the host of the {@code createContainer} hook (native-shim/README.md, Before a container starts)
 */
public record Shim(String version, Path library, Path preload, Path hook) {
    /** The folder in this program's image with {@code libaliquot.so}, {@code VERSION} and {@code aliquot-hook}. */
    public static final Path IN_IMAGE = Path.of("/opt/aliquot/shim");

    private static final String LIBRARY = "libaliquot.so";
    private static final String PRELOAD = "ld.so.preload";
    private static final String HOOK = "aliquot-hook";
    private static final String TEMPORARY = ".new";
    private static final Pattern VERSION = Pattern.compile("[A-Za-z0-9][A-Za-z0-9._+-]{0,100}-([0-9a-f]{12})");
    private static final Set<PosixFilePermission> READABLE_BY_ALL = PosixFilePermissions.fromString("rw-r--r--");
    // In a pod with a user namespace the hook is no root on the node.
    private static final Set<PosixFilePermission> EXECUTABLE_BY_ALL = PosixFilePermissions.fromString("rwxr-xr-x");

    /** The library's path in a container. */
    public String libraryInContainer() {
        return libraryInContainer(version);
    }

    /**
     * Installs this release's shim, each file atomically, unless it is installed.
     *
     * @param source folder like {@link #IN_IMAGE}
     * @param stateDir Aliquot's folder on the host
     * @throws IOException if a file of the source is missing, the version does not match the library, or the host's
     *     folder cannot be written
     */
    public static Shim install(Path source, Path stateDir) throws IOException {
        byte[] library = read(source.resolve(LIBRARY));
        String version = new String(read(source.resolve("VERSION")), StandardCharsets.UTF_8).strip();
        Matcher form = VERSION.matcher(version);
        String hash = sha256(library).substring(0, 12);
        if (!form.matches() || !form.group(1).equals(hash)) {
            throw new IOException(source.resolve("VERSION") + ": expected <release>-" + hash + " (the end of"
                    + " the version is the SHA-256 of " + LIBRARY + "), found \""
                    + version.lines().findFirst().orElse("")
                    + "\"; the image is damaged: pull it again");
        }
        Path folder = stateDir.resolve("shim").resolve(version);
        Files.createDirectories(folder);
        try (DirectoryStream<Path> incomplete = Files.newDirectoryStream(folder, ".*" + TEMPORARY)) {
            for (Path file : incomplete) { // left by a killed process
                Files.delete(file);
            }
        }
        var shim = new Shim(version, folder.resolve(LIBRARY), folder.resolve(PRELOAD), folder.resolve(HOOK));
        write(shim.library, library, READABLE_BY_ALL);
        write(shim.preload, (libraryInContainer(version) + "\n").getBytes(StandardCharsets.US_ASCII), READABLE_BY_ALL);
        write(shim.hook, read(source.resolve(HOOK)), EXECUTABLE_BY_ALL);
        return shim;
    }

    private static String libraryInContainer(String version) {
        return ContainerPaths.SHIM_FOLDER + "/" + version + "/" + LIBRARY;
    }

    private static byte[] read(Path file) throws IOException {
        try {
            return Files.readAllBytes(file);
        } catch (NoSuchFileException e) {
            throw new IOException(file + " is missing; the image is damaged: pull it again", e);
        }
    }

    /** Replaces a damaged file by a new inode: running containers have mapped the old one, which must not change. */
    private static void write(Path file, byte[] content, Set<PosixFilePermission> permissions) throws IOException {
        if (HeldFile.isContent(file, content)) {
            return;
        }
        Path temporary = Files.createTempFile(file.getParent(), "." + file.getFileName(), TEMPORARY);
        try {
            Files.write(temporary, content);
            Files.setPosixFilePermissions(temporary, permissions);
            try (var channel = FileChannel.open(temporary, StandardOpenOption.WRITE)) {
                channel.force(true); // a container started after a power cut must not load an incomplete library
            }
            Files.move(temporary, file, StandardCopyOption.ATOMIC_MOVE);
        } finally {
            Files.deleteIfExists(temporary);
        }
    }

    private static String sha256(byte[] content) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(content));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("each Java platform has SHA-256", e);
        }
    }
}
