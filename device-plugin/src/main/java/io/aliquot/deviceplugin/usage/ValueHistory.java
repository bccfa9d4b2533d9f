package io.aliquot.deviceplugin.usage;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalInt;

/**
 * Some values for each of the latest seconds, in a ring that grows with the time that it has values of. {@link #coarsen}
 * keeps a value of each ten seconds, or of each hundred. Not thread-safe.
 */
final class ValueHistory {
    private static final int ABSENT = -1;
    private static final int FIRST_ROWS = 8;

    private final int columns;
    private final int seconds;

    /** How many seconds a row is of. */
    private int step = 1;

    /** Rows one after the other: row n is at n modulo their number. */
    private int[] values;

    private long firstSecond = -1;
    private long lastSecond = -1;

    /**
     * Without values.
     *
     * @param columns how many values a second has
     * @param seconds how many are kept
     */
    ValueHistory(int columns, int seconds) {
        this.columns = columns;
        this.seconds = seconds;
        values = absent(FIRST_ROWS);
    }

    /** Sets the values of a second, which is not before that of the last call. */
    void put(long second, OptionalInt... row) {
        if (lastSecond < 0) {
            firstSecond = second;
        }
        // Samples are a little more than a second apart, so now and then a second has none.
        boolean fills = second - lastSecond == 2 && lastSecond >= 0;
        long next = lastSecond < 0 ? second / step : Math.max(lastSecond / step + 1, (second - seconds) / step);
        int wanted = rows(firstSecond, second, step);
        if (wanted > values.length / columns) {
            move(step, Math.min(Math.max(wanted, 2 * values.length / columns), seconds / step + 1));
        }
        lastSecond = second;
        for (long skipped = next; skipped < second / step; skipped++) {
            set(skipped, fills ? row : new OptionalInt[0]);
        }
        set(second / step, row);
    }

    private void set(long row, OptionalInt... of) {
        for (int column = 0; column < columns; column++) {
            values[index(row, values) + column] = of.length == 0 ? ABSENT : of[column].orElse(ABSENT);
        }
    }

    /** How many rows hold these seconds, of which only the latest are kept. */
    private int rows(long first, long last, int step) {
        return (int) Math.min(last / step - first / step, seconds / step) + 1;
    }

    /** Keeps only the latest values of each {@code seconds}; no effect if it is so already. */
    void coarsen(int seconds) {
        if (step < seconds) {
            move(seconds, rows(firstSecond, lastSecond, seconds));
        }
    }

    private void move(int to, int count) {
        int[] former = values;
        int formerRows = former.length / columns;
        values = absent(count);
        long last = lastSecond / step;
        for (long row = Math.max(firstSecond / step, last - formerRows + 1); row <= last; row++) {
            System.arraycopy(former, index(row, former), values, index(row * step / to, values), columns);
        }
        step = to;
    }

    private int[] absent(int count) {
        int[] empty = new int[count * columns];
        Arrays.fill(empty, ABSENT);
        return empty;
    }

    private int index(long row, int[] in) {
        return (int) (row % (in.length / columns)) * columns;
    }

    /** The second of the latest values; negative without. */
    long last() {
        return lastSecond;
    }

    /** What the values take, without the object. */
    int bytes() {
        return values.length * Integer.BYTES;
    }

    OptionalInt latest(int column) {
        return at(lastSecond, column);
    }

    /** The smallest of the latest values; empty if one is unknown. */
    OptionalInt smallest(int column, long end, int count) {
        int smallest = Integer.MAX_VALUE;
        for (long second = end - count + 1; second <= end; second++) {
            OptionalInt value = at(second, column);
            if (value.isEmpty()) {
                return value;
            }
            smallest = Math.min(smallest, value.getAsInt());
        }
        return OptionalInt.of(smallest);
    }

    /** Oldest first. */
    List<OptionalInt> until(long end, int column) {
        var list = new ArrayList<OptionalInt>(seconds);
        for (long second = end - seconds + 1; second <= end; second++) {
            list.add(at(second, column));
        }
        return list;
    }

    private OptionalInt at(long second, int column) {
        if (second < Math.max(firstSecond, lastSecond - seconds + 1) || second > lastSecond || second < 0) {
            return OptionalInt.empty();
        }
        int value = values[index(second / step, values) + column];
        return value == ABSENT ? OptionalInt.empty() : OptionalInt.of(value);
    }
}
