package io.aliquot.deviceplugin.shim;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.shim.Region;
import io.aliquot.deviceplugin.files.ContainerFiles;
import io.aliquot.deviceplugin.files.HeldFile;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.HashSet;
import java.util.Set;

/**
 * Finds containers in which the driver returned a function that the shim must hook but does not know, probably because
 * the driver is newer than the shim. Calls of that function bypass the limits. The shim has no log of its own, so it
 * counts such functions in the container's region, and this check logs them and sets a metric. A container can write
 * its region, so the check finds accidents and not attacks.
 *
 * <p>Not thread-safe.
 */
public final class UnhookedFunctionCheck {
    private static final Logger LOG = System.getLogger(UnhookedFunctionCheck.class.getName());

    private final ContainerFiles regions;
    private final AgentMetrics metrics;
    private Set<String> affected = Set.of();

    /** Creates the check. */
    public UnhookedFunctionCheck(ContainerFiles regions, AgentMetrics metrics) {
        this.regions = regions;
        this.metrics = metrics;
    }

    /** Reads the header of each slot's region. */
    public void run() {
        var found = new HashSet<String>();
        regions.held().forEach((slot, file) -> {
            if (unhookedFunctions(file) != 0) {
                found.add(slot);
            }
        });
        for (String slot : found) {
            if (!affected.contains(slot)) {
                LOG.log(
                        Level.ERROR,
                        "In the container of {0} the driver returned a CUDA function that the shim does not know, so"
                                + " its calls bypass the limits: the driver is probably newer than this version of"
                                + " Aliquot supports; upgrade Aliquot, or report the driver''s version",
                        slot);
            }
        }
        affected = found;
        metrics.containersWithUnhookedFunctions(found.size());
    }

    private static long unhookedFunctions(HeldFile file) {
        try {
            return Region.unhookedFunctions(file::read);
        } catch (IOException | FormatException e) {
            return 0; // empty or damaged by its container; the shim repairs or refuses it
        }
    }
}
