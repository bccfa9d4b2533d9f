package io.aliquot.deviceplugin.shim;

import io.aliquot.api.ContainerPaths;
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
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The shim as it lies on the host, below {@code <state>/shim/<version>}: the library, and the file that has the dynamic
 * linker load it. A version's files never change: another library has another version, since the version ends with its
 * hash. Old versions stay, because the kubelet replays Allocate's answers, which name them, at every restart of a
 * container.
 *
 * @param version content of {@code VERSION}
 * @param library the host's path of {@code libaliquot.so}
 * @param preload the host's path of the file for {@link ContainerPaths#PRELOAD}
 */
public record Shim(String version, Path library, Path preload) {
    private static final String LIBRARY = "libaliquot.so";
    private static final String PRELOAD = "ld.so.preload";
    private static final String TEMPORARY = ".new";
    private static final Pattern VERSION = Pattern.compile("[A-Za-z0-9][A-Za-z0-9._+-]{0,100}-([0-9a-f]{12})");
    private static final Set<PosixFilePermission> READABLE_BY_ALL = PosixFilePermissions.fromString("rw-r--r--");

    /** The library's path in the container. */
    public String libraryInContainer() {
        return libraryInContainer(version);
    }

    /**
     * Puts the shim of this release in place, atomically and only where it isn't already.
     *
     * @param source folder of {@code libaliquot.so} and {@code VERSION}
     * @param state the host's folder of Aliquot
     * @throws IOException if the source is incomplete, contradicts itself, or the host's folder can't be written
     */
    public static Shim install(Path source, Path state) throws IOException {
        byte[] library = read(source.resolve(LIBRARY));
        String version = new String(read(source.resolve("VERSION")), StandardCharsets.UTF_8).strip();
        Matcher form = VERSION.matcher(version);
        String hash = sha256(library).substring(0, 12);
        if (!form.matches() || !form.group(1).equals(hash)) {
            throw new IOException(source.resolve("VERSION") + ": expected <release>-" + hash + " (the end is "
                    + LIBRARY + "'s SHA-256), found \""
                    + version.lines().findFirst().orElse("")
                    + "\"; the image is damaged, pull it again");
        }
        Path folder = state.resolve("shim").resolve(version);
        Files.createDirectories(folder);
        try (DirectoryStream<Path> halves = Files.newDirectoryStream(folder, ".*" + TEMPORARY)) {
            for (Path half : halves) { // of a run that was killed
                Files.delete(half);
            }
        }
        var shim = new Shim(version, folder.resolve(LIBRARY), folder.resolve(PRELOAD));
        place(shim.library, library);
        place(shim.preload, (libraryInContainer(version) + "\n").getBytes(StandardCharsets.US_ASCII));
        return shim;
    }

    private static String libraryInContainer(String version) {
        return ContainerPaths.SHIM_FOLDER + "/" + version + "/" + LIBRARY;
    }

    private static byte[] read(Path file) throws IOException {
        try {
            return Files.readAllBytes(file);
        } catch (NoSuchFileException e) {
            throw new IOException(file + " is missing; ALIQUOT_SHIM_SOURCE names the folder that holds it", e);
        }
    }

    /** A damaged file gets a new inode: what running containers have mapped is never written to. */
    private static void place(Path file, byte[] content) throws IOException {
        if (Files.isRegularFile(file) && Arrays.equals(Files.readAllBytes(file), content)) {
            return;
        }
        Path temporary = Files.createTempFile(file.getParent(), "." + file.getFileName(), TEMPORARY);
        try {
            Files.write(temporary, content);
            Files.setPosixFilePermissions(temporary, READABLE_BY_ALL);
            try (var channel = FileChannel.open(temporary, StandardOpenOption.WRITE)) {
                channel.force(true); // a container started after a power cut must not load half a library
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
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }
}
