package io.aliquot.scheduler.scoring;

import java.util.Arrays;
import java.util.List;

/**
 * The best liked of many nodes, so many at most; of equally liked ones the first by rank. A heap with the worst that is
 * kept at its top: where few are kept of many, most are turned away by one comparison. Nodes are told by their indexes in
 * a list and by ranks, no two the same, so that nothing has to be looked at in memory to compare them.
 */
final class TopK {
    private int[] indexes = {};
    private int[] ranks = {};
    private double[] likings = {};
    private int most;
    private int size;

    /** Begins anew; keeps {@code most} at most, 1 or more. */
    void begin(int most) {
        if (indexes.length < most) {
            indexes = new int[most];
            ranks = new int[most];
            likings = new double[most];
        }
        this.most = most;
        size = 0;
    }

    /** Whether one that is liked so much, and no more, would be kept. */
    boolean takes(int rank, double liking) {
        return size < most || worse(likings[0], ranks[0], liking, rank);
    }

    /** How much the worst of those is liked that are kept; nobody is worse where there is room for more. */
    double worst() {
        return size < most ? Double.NEGATIVE_INFINITY : likings[0];
    }

    void add(int index, int rank, double liking) {
        if (size < most) {
            up(size++, index, rank, liking);
        } else if (worse(likings[0], ranks[0], liking, rank)) {
            down(size, index, rank, liking);
        }
    }

    private static boolean worse(double liking, int rank, double other, int otherRank) {
        return liking < other || (liking == other && rank > otherRank);
    }

    private void up(int at, int index, int rank, double liking) {
        int place = at;
        while (place > 0) {
            int parent = (place - 1) / 2;
            if (!worse(liking, rank, likings[parent], ranks[parent])) {
                break;
            }
            move(parent, place);
            place = parent;
        }
        set(place, index, rank, liking);
    }

    /** Puts one in place of the worst, among the first {@code size}. */
    private void down(int size, int index, int rank, double liking) {
        int place = 0;
        for (int child = 1; child < size; child = 2 * place + 1) {
            if (child + 1 < size && worse(likings[child + 1], ranks[child + 1], likings[child], ranks[child])) {
                child++;
            }
            if (!worse(likings[child], ranks[child], liking, rank)) {
                break;
            }
            move(child, place);
            place = child;
        }
        set(place, index, rank, liking);
    }

    private void move(int from, int to) {
        set(to, indexes[from], ranks[from], likings[from]);
    }

    private void set(int place, int index, int rank, double liking) {
        indexes[place] = index;
        ranks[place] = rank;
        likings[place] = liking;
    }

    /** The best first, of this list. Nothing can be added before it begins anew. */
    List<String> sorted(List<String> names) {
        for (int last = size - 1; last > 0; last--) {
            int index = indexes[last];
            int rank = ranks[last];
            double liking = likings[last];
            move(0, last);
            down(last, index, rank, liking);
        }
        var best = new String[size];
        for (int i = 0; i < size; i++) {
            best[i] = names.get(indexes[i]);
        }
        return Arrays.asList(best);
    }
}
