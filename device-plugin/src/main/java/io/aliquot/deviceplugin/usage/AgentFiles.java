package io.aliquot.deviceplugin.usage;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.GpuUuids;
import io.aliquot.api.pods.Held;
import io.aliquot.api.shim.AgentFile;
import io.aliquot.deviceplugin.files.ContainerFiles;
import io.aliquot.deviceplugin.files.HeldFile;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * Tells the processes of containers their unattributed memory, by {@link AgentFile}s, which the containers cannot write, and
 * makes the entries in which the arbiter writes. A container that started before this agent's version has no file.
 *
 * <p>Not thread-safe.
 */
final class AgentFiles {
    private static final Logger LOG = System.getLogger(AgentFiles.class.getName());

    private final ContainerFiles files;

    /** Writes nothing yet. */
    AgentFiles(ContainerFiles files) {
        this.files = files;
    }

    /**
     * Makes an entry for a GPU that a container uses, for the arbiter, and writes its unattributed memory. Writes that again
     * also if it has not changed, unless it is 0, because the shim does not count values that are older than a minute, as those
     * of an agent that is gone.
     *
     * Writes what the container holds, if that is known; else what was written before stays, since no pod's share becomes a
     * whole card or the reverse.
     *
     * @param unattributedBytes empty if not known
     * @param monotonicMillis {@code CLOCK_MONOTONIC}, which the shim reads too
     */
    void write(String slot, String uuid, Held holds, OptionalLong unattributedBytes, long monotonicMillis) {
        Optional<HeldFile> held = files.find(slot);
        if (held.isEmpty()) {
            return;
        }
        HeldFile file = held.get();
        try {
            AgentFile content = read(file);
            if (holds != Held.UNKNOWN && holds != content.held()) {
                AgentFile.writeHeld(file::write, holds);
            }
            Optional<Integer> entry = entry(content, uuid);
            if (entry.isEmpty()) {
                return;
            }
            AgentFile.Device known = content.devices().get(entry.get());
            long before = known == null ? 0 : known.unattributedBytes();
            if (unattributedBytes.isPresent() && (unattributedBytes.getAsLong() != 0 || before != 0)) {
                AgentFile.writeUnattributed(file::write, entry.get(), unattributedBytes.getAsLong(), monotonicMillis);
            }
            if (known == null) {
                AgentFile.makeEntry(file::write, entry.get(), uuid);
            }
        } catch (IOException | FormatException e) {
            LOG.log(Level.DEBUG, "Cannot write the agent''s file of {0}: {1}", slot, e.toString());
        }
    }

    private static AgentFile read(HeldFile file) throws IOException {
        var content = ByteBuffer.allocateDirect(AgentFile.SIZE);
        while (content.hasRemaining() && file.read(content, content.position()) >= 0) {
            // until the buffer is full or the file ends
        }
        var bytes = new byte[content.position()];
        content.flip().get(bytes);
        return AgentFile.parse(bytes);
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
