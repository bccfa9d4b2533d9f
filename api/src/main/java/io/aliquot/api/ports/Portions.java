package io.aliquot.api.ports;

import java.util.HashMap;
import java.util.Map;

/**
 * Units of something that clients hold while they are slow. A client has no more than it leaves to others: half of all if
 * it is alone, a third beside one that has as much. Thread-safe.
 */
public final class Portions {
    private final int reserved;
    private final Map<Object, Integer> held = new HashMap<>();
    private int free;

    /**
     * All are free.
     *
     * @param reserved of all units: for preferred clients, which may also have the others
     */
    public Portions(int all, int reserved) {
        this.free = all;
        this.reserved = reserved;
    }

    /** Takes a unit; returns false if the client may have no more now. */
    public synchronized boolean take(Object client, boolean preferred) {
        if (preferred ? free == 0 : held.getOrDefault(client, 0) >= free - reserved) {
            return false;
        }
        free--;
        held.merge(client, 1, Integer::sum);
        return true;
    }

    /** Gives back so many of the client's units. */
    public synchronized void giveBack(Object client, int units) {
        free += units;
        held.computeIfPresent(client, (same, its) -> its > units ? its - units : null);
    }
}
