package io.aliquot.scheduler.ledger;

import java.util.Arrays;
import java.util.List;

/**
 * The best liked of many nodes, so many at most; of equally liked ones the first by name. A heap with the worst that is
 * kept at its top: where few are kept of many, most are turned away by one comparison.
 */
final class Best {
    private String[] names = {};
    private double[] likings = {};
    private int most;
    private int size;

    /** Begins anew; keeps {@code most} at most, 1 or more. */
    void begin(int most) {
        if (names.length < most) {
            names = new String[most];
            likings = new double[most];
        }
        this.most = most;
        size = 0;
    }

    /** Whether one that is liked so much, and no more, would be kept. */
    boolean takes(String name, double liking) {
        return size < most || worse(likings[0], names[0], liking, name);
    }

    /** How much the worst of those is liked that are kept; nobody is worse where there is room for more. */
    double worst() {
        return size < most ? Double.NEGATIVE_INFINITY : likings[0];
    }

    void add(String name, double liking) {
        if (size < most) {
            up(size++, name, liking);
        } else if (worse(likings[0], names[0], liking, name)) {
            down(size, name, liking);
        }
    }

    private static boolean worse(double liking, String name, double other, String otherName) {
        return liking < other || (liking == other && name.compareTo(otherName) > 0);
    }

    private void up(int at, String name, double liking) {
        int place = at;
        while (place > 0) {
            int parent = (place - 1) / 2;
            if (!worse(liking, name, likings[parent], names[parent])) {
                break;
            }
            set(place, names[parent], likings[parent]);
            place = parent;
        }
        set(place, name, liking);
    }

    /** Puts one in place of the worst, among the first {@code size}. */
    private void down(int size, String name, double liking) {
        int place = 0;
        for (int child = 1; child < size; child = 2 * place + 1) {
            if (child + 1 < size && worse(likings[child + 1], names[child + 1], likings[child], names[child])) {
                child++;
            }
            if (!worse(likings[child], names[child], liking, name)) {
                break;
            }
            set(place, names[child], likings[child]);
            place = child;
        }
        set(place, name, liking);
    }

    private void set(int place, String name, double liking) {
        names[place] = name;
        likings[place] = liking;
    }

    /** The best first. Nothing can be added before it begins anew. */
    List<String> sorted() {
        for (int last = size - 1; last > 0; last--) {
            String name = names[last];
            double liking = likings[last];
            set(last, names[0], likings[0]);
            down(last, name, liking);
        }
        return Arrays.asList(Arrays.copyOf(names, size));
    }
}
