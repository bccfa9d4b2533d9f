package io.aliquot.deviceplugin.files;

import io.aliquot.deviceplugin.files.HeldFile.ClosedToAgentException;
import io.aliquot.deviceplugin.files.HeldFile.LeasedException;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;

/** The files of a folder that containers mount, kept open by their names. Thread-safe; nothing here waits for a container. */
public class HeldFiles {
    private static final Logger LOG = System.getLogger(HeldFiles.class.getName());

    private final Path folder;
    private final String glob;
    private final boolean writable;
    private final Map<String, HeldFile> held = new ConcurrentHashMap<>();
    private final Map<String, Refused> refused = new ConcurrentHashMap<>();

    /** Why a file cannot be opened. */
    public enum Refused {
        /** A container holds a lease. */
        LEASED,
        /** A container has given the file to another user, or taken the agent's permission away. */
        CLOSED
    }

    /** Holds nothing before {@link #refresh}. */
    HeldFiles(Path folder, String glob, boolean writable) {
        this.folder = folder;
        this.glob = glob;
        this.writable = writable;
    }

    /** Where the file is. */
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

    /** The files that cannot be opened; they are tried again at each {@link #refresh}. */
    public final Map<String, Refused> refused() {
        return refused;
    }

    /** Opens the files that are not kept open. */
    public final synchronized void refresh() {
        held.forEach((name, file) -> {
            try {
                if (file.status().links() == 0) {
                    forget(name);
                }
            } catch (IOException e) {
                forget(name);
            }
        });
        refused.keySet().removeIf(name -> !Files.exists(path(name)));
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, glob)) {
            for (Path file : files) {
                String name = file.getFileName().toString();
                if (!held.containsKey(name)) {
                    open(name);
                }
            }
        } catch (IOException e) {
            LOG.log(Level.DEBUG, "Cannot list {0}: {1}", folder, e.toString());
        }
    }

    /** Tries again to open the files on which containers hold leases. */
    public final synchronized void retryLeased() {
        refused.forEach((name, why) -> {
            if (why == Refused.LEASED) {
                open(name);
            }
        });
    }

    private void open(String name) {
        try {
            hold(name, HeldFile.open(path(name), writable));
        } catch (LeasedException e) {
            if (refused.put(name, Refused.LEASED) != Refused.LEASED) {
                LOG.log(Level.WARNING, "A container holds a lease on {0}, trying again", path(name));
            }
        } catch (ClosedToAgentException e) {
            refused.put(name, Refused.CLOSED);
        } catch (IOException e) {
            refused.remove(name);
            LOG.log(Level.DEBUG, "Cannot open {0}: {1}", path(name), e.toString());
        }
    }

    /** Keeps a file open in place of the one before. */
    private void hold(String name, HeldFile file) {
        refused.remove(name);
        HeldFile before = held.put(name, file);
        if (before != null) {
            before.close();
        }
    }

    private void forget(String name) {
        HeldFile before = held.remove(name);
        if (before != null) {
            before.close();
        }
    }

    /** Gives a new file its name, in place of the one before, and keeps it open. No container has seen the file. */
    final synchronized void replace(String name, Path file) throws IOException {
        HeldFile opened = HeldFile.open(file, writable);
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
            forget(name);
            refused.remove(name);
            Files.deleteIfExists(path(name));
        }
    }
}
