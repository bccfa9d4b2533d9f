package io.aliquot.deviceplugin.usage;

import io.aliquot.api.names.FormatException;
import io.aliquot.api.names.GpuUuids;
import io.aliquot.api.shim.AgentFile;
import io.aliquot.api.shim.Region;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashSet;
import java.util.Optional;
import java.util.Set;

/**
 * Tells the processes of containers their unattributed memory, by {@link AgentFile}s, which the containers cannot write. A
 * container that started before this agent's version has none.
 *
 * <p>Not thread-safe.
 */
final class AgentFiles {
    private static final Logger LOG = System.getLogger(AgentFiles.class.getName());

    private static final Region.Grant NO_GRANT = new Region.Grant(0, 0);

    private final Path folder;

    /** The slots and GPUs of which the file says more than 0. */
    private final Set<String> notZero = new HashSet<>();

    /**
     * Writes nothing yet.
     *
     * @param folder of the files by slot
     */
    AgentFiles(Path folder) {
        this.folder = folder;
    }

    /**
     * Writes a container's unattributed memory on a GPU. Writes it again also if it has not changed, because the shim does
     * not count values that are older than a minute, as those of an agent that is gone.
     *
     * @param monotonicMillis {@code CLOCK_MONOTONIC}, which the shim reads too
     */
    void write(String slot, String uuid, long unattributedBytes, long monotonicMillis) {
        String key = slot + " " + uuid;
        if (unattributedBytes == 0 && !notZero.contains(key)) {
            return; // as in a new file
        }
        try (var file = FileChannel.open(
                folder.resolve(slot), StandardOpenOption.READ, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS)) {
            Optional<Integer> entry = entry(AgentFile.parse(Files.readAllBytes(folder.resolve(slot))), uuid);
            if (entry.isPresent()) {
                AgentFile.write(
                        file, entry.get(), new AgentFile.Device(uuid, NO_GRANT, unattributedBytes, monotonicMillis, 0));
            }
            if (unattributedBytes == 0) {
                notZero.remove(key);
            } else {
                notZero.add(key);
            }
        } catch (IOException | FormatException e) {
            LOG.log(Level.DEBUG, "Cannot write the agent''s file of {0}: {1}", slot, e.toString());
        }
    }

    /** The entry of a GPU, or else a free one; empty if neither exists. */
    private static Optional<Integer> entry(AgentFile file, String uuid) {
        for (var entry : file.devices().entrySet()) {
            if (GpuUuids.digits(entry.getValue().uuid()).equals(GpuUuids.digits(uuid))) {
                return Optional.of(entry.getKey());
            }
        }
        for (int free = 0; free < AgentFile.DEVICES; free++) {
            if (!file.devices().containsKey(free)) {
                return Optional.of(free);
            }
        }
        return Optional.empty();
    }
}
