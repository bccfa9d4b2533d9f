package io.aliquot.deviceplugin.files;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/**
 * All files of this node that containers mount, kept open. Thread-safe.
 *
 * @param regions which their containers can write
 * @param agentFiles which they can read
 * @param shims the folders of all installed versions, which all containers read: a lease of one would keep the others from
 *     starting programs
 */
public record SlotFiles(ContainerFiles regions, ContainerFiles agentFiles, List<HeldFiles> shims) {
    public SlotFiles {
        shims = List.copyOf(shims);
    }

    /**
     * Opens the files that exist.
     *
     * @param stateDir Aliquot's folder on the host; the shim is installed
     * @throws IOException if the folders of slots cannot be created
     */
    public static SlotFiles open(Path stateDir) throws IOException {
        var shims = new ArrayList<HeldFiles>();
        Path versions = Files.createDirectories(stateDir.resolve("shim"));
        try (DirectoryStream<Path> folders = Files.newDirectoryStream(versions)) {
            for (Path folder : folders) {
                shims.add(new HeldFiles(folder, "{libaliquot.so,ld.so.preload}", false));
            }
        }
        var files = new SlotFiles(ContainerFiles.regions(stateDir), ContainerFiles.ofAgent(stateDir), shims);
        files.refresh();
        return files;
    }

    /** See {@link HeldFiles#refresh}. */
    public void refresh() {
        all().forEach(HeldFiles::refresh);
    }

    /** See {@link HeldFiles#retryLeased}. */
    public void retryLeased() {
        all().forEach(HeldFiles::retryLeased);
    }

    /** Whether a container holds a lease on one of the files. */
    public boolean isLeased() {
        return all().anyMatch(files -> files.refused().containsValue(HeldFiles.Refused.LEASED));
    }

    private Stream<HeldFiles> all() {
        return Stream.concat(Stream.of(regions, agentFiles), shims.stream());
    }
}
