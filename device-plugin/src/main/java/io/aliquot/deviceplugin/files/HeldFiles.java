package io.aliquot.deviceplugin.files;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** The files of a folder that containers mount, kept open by their names. Thread-safe. */
public class HeldFiles {
    private final Path folder;
    private final String glob;
    private final boolean writable;
    private final Map<String, HeldFile> held = new ConcurrentHashMap<>();
    private final Set<String> refused = ConcurrentHashMap.newKeySet();

    /** Holds nothing before {@link #refresh}. */
    HeldFiles(Path folder, String glob, boolean writable) {
        this.folder = folder;
        this.glob = glob;
        this.writable = writable;
    }

    /** Where a file is. */
    public final Path path(String name) {
        return folder.resolve(name);
    }

    /** The files that are kept open, by their names. */
    public final Map<String, HeldFile> held() {
        return held;
    }

    /** The file; empty if there is none or it cannot be opened. */
    public final Optional<HeldFile> find(String name) {
        return Optional.ofNullable(held.get(name));
    }

    /** The files that cannot be opened, because a container holds a lease or has taken the agent's permission away. */
    public final Set<String> refused() {
        return refused;
    }

    /** Opens the files that are not kept open, and closes those that are no longer in the folder. */
    public final synchronized void refresh() throws IOException {
        refused.clear();
        for (Iterator<HeldFile> files = held.values().iterator(); files.hasNext(); ) {
            HeldFile file = files.next();
            if (file.status().links() == 0) {
                files.remove();
                file.close();
            }
        }
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, glob)) {
            files.forEach(file -> open(file.getFileName().toString()));
        }
    }

    /** Tries again to open a file that could not be opened, and waits for a lease. */
    public final void openWaiting(String name) throws IOException {
        HeldFile file = HeldFile.open(path(name), writable, true);
        synchronized (this) {
            if (held.containsKey(name)) {
                file.close(); // the slot has been allocated again
            } else {
                hold(name, file);
            }
        }
    }

    private void open(String name) {
        if (!held.containsKey(name)) {
            try {
                hold(name, HeldFile.open(path(name), writable, false));
            } catch (IOException e) {
                if (Files.isRegularFile(path(name), LinkOption.NOFOLLOW_LINKS)) {
                    refused.add(name);
                }
            }
        }
    }

    /** Keeps a file open in place of the one before. */
    private void hold(String name, HeldFile file) {
        refused.remove(name);
        Optional.ofNullable(held.put(name, file)).ifPresent(HeldFile::close);
    }

    /** Gives a new file its name, in place of the one before, and keeps it open. No container has seen the file. */
    final synchronized void replace(String name, Path file) throws IOException {
        HeldFile opened = HeldFile.open(file, writable, false);
        try {
            Files.move(file, path(name), StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException e) {
            opened.close();
            throw e;
        }
        hold(name, opened);
    }

    /** Removes a file unless another one has its name meanwhile; {@code file} is empty for one that is not open. */
    public final synchronized void remove(String name, Optional<HeldFile> file) throws IOException {
        if (find(name).equals(file)) {
            Files.deleteIfExists(path(name)); // refresh closes it
        }
    }
}
