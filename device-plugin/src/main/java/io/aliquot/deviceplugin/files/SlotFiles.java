package io.aliquot.deviceplugin.files;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * All files of this node that containers mount, kept open. Thread-safe.
 *
 * @param regions which their containers can write
 * @param agentFiles which they can read
 * @param all these, and the shims of all installed versions, which all containers read: a lease of one would keep the others
 *     from starting programs
 */
public record SlotFiles(ContainerFiles regions, ContainerFiles agentFiles, List<HeldFiles> all) {
    public SlotFiles {
        all = List.copyOf(all);
    }

    /**
     * Opens the files that exist.
     *
     * @param stateDir Aliquot's folder on the host; the shim is installed
     * @throws IOException if the folders of slots cannot be created
     */
    public static SlotFiles open(Path stateDir) throws IOException {
        var files = new SlotFiles(ContainerFiles.regions(stateDir), ContainerFiles.ofAgent(stateDir), List.of());
        var all = new ArrayList<HeldFiles>(List.of(files.regions, files.agentFiles));
        try (DirectoryStream<Path> versions =
                Files.newDirectoryStream(Files.createDirectories(stateDir.resolve("shim")))) {
            versions.forEach(version -> all.add(new HeldFiles(version, "{libaliquot.so,ld.so.preload}", false)));
        }
        for (HeldFiles each : all) {
            each.refresh();
        }
        return new SlotFiles(files.regions, files.agentFiles, all);
    }
}
