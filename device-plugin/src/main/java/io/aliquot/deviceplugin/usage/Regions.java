package io.aliquot.deviceplugin.usage;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.GpuUuids;
import io.aliquot.api.shim.Region;
import io.aliquot.deviceplugin.files.ContainerFiles;
import io.aliquot.deviceplugin.files.HeldFile;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/**
 * The regions of this node's containers. A container can write its region, so what it says is shown as the container's own
 * claim, and limits no other container.
 *
 * <p>Not thread-safe.
 */
final class Regions {
    private final ContainerFiles files;
    private final ByteBuffer buffer = ByteBuffer.allocateDirect(Region.SIZE);

    /** Reads nothing yet. */
    Regions(ContainerFiles files) {
        this.files = files;
    }

    /**
     * What a container says of its use of one GPU.
     *
     * @param chargedBytes of each process that the shim counts, by its ID in its PID namespace; 0 for one that is not known
     * @param throttledNanos for which launches were throttled, over all threads
     * @param denied how often the limit refused memory
     */
    record Claim(Map<Integer, Long> chargedBytes, long throttledNanos, long denied) {
        static final Claim NONE = new Claim(Map.of(), 0, 0);

        Claim {
            chargedBytes = Map.copyOf(chargedBytes);
        }
    }

    /** The claims of a slot's container by {@link GpuUuids#digits} of the GPU; empty if its region cannot be read. */
    Optional<Map<String, Claim>> read(String slot) {
        Optional<HeldFile> file = files.find(slot);
        if (file.isEmpty()) {
            return Optional.empty();
        }
        try {
            Region region = Region.read(file.get()::read, buffer);
            Map<String, Claim> claims = new HashMap<>();
            for (Region.Device device : region.devices()) {
                claims.put(GpuUuids.digits(device.uuid()), claim(region, device));
            }
            return Optional.of(claims);
        } catch (IOException | FormatException e) {
            return Optional.empty();
        }
    }

    private static Claim claim(Region region, Region.Device device) {
        Map<Integer, Long> charged = new HashMap<>();
        for (int process = 0; process < region.processHighWater(); process++) {
            long bytes = region.chargedBytes(device.index(), process);
            int pid = region.pid(process);
            if (bytes > 0 || pid != 0) {
                charged.merge(pid, bytes, Long::sum);
            }
        }
        return new Claim(charged, Math.max(0, device.throttledNanos()), Math.max(0, device.denied()));
    }
}
