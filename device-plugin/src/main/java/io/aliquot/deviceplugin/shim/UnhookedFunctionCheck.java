package io.aliquot.deviceplugin.shim;

import io.aliquot.api.FormatException;
import io.aliquot.api.Region;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Map;

/**
 * What the shim tells of itself in the containers' state files, since it may not write a log of its own: addresses that
 * the driver gave out and the shim could not place. Each is a way around the limit, so the log and a metric say so. A
 * container can write its file: this finds accidents, such as a driver newer than the shim knows, and no liars.
 *
 * <p>Not thread-safe.
 */
public final class UnhookedFunctionCheck {
    private static final Logger LOG = System.getLogger(UnhookedFunctionCheck.class.getName());

    private final Path folder;
    private final AgentMetrics metrics;
    private final ByteBuffer header = ByteBuffer.allocate(Region.HEADER_SIZE);
    private Map<String, Long> told = Map.of();

    /** Reads nothing yet. */
    public UnhookedFunctionCheck(Path state, AgentMetrics metrics) {
        folder = state.resolve("slots");
        this.metrics = metrics;
    }

    /** Reads every slot's file, a page of each, and tells what is new. */
    public void read() {
        var now = new HashMap<String, Long>();
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "slot-*")) {
            for (Path file : files) {
                long unplaced = unplaced(file);
                if (unplaced != 0) {
                    String slot = file.getFileName().toString();
                    now.put(slot, unplaced);
                    if (!told.containsKey(slot)) {
                        LOG.log(
                                Level.ERROR,
                                "In the container of {0} the driver answered with addresses that the shim cannot place:"
                                        + " its limits have a hole; probably a driver newer than this version of"
                                        + " Aliquot knows",
                                slot);
                    }
                }
            }
        } catch (IOException e) {
            LOG.log(Level.DEBUG, "Cannot list {0}: {1}", folder, e.getMessage());
        }
        told = now;
        metrics.containersWithHoles(now.size());
    }

    private long unplaced(Path file) {
        header.clear();
        // Without following a link, and never by mmap: a container may do with its file what it likes.
        try (var channel = FileChannel.open(file, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS)) {
            while (header.hasRemaining() && channel.read(header, header.position()) > 0) {}
            return Region.unplacedAddresses(header.flip());
        } catch (IOException | FormatException e) {
            return 0; // empty, or spoilt by its container, which the shim then puts right or refuses
        }
    }
}
