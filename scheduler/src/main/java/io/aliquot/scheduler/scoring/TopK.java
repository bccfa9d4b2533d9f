package io.aliquot.scheduler.scoring;

import java.util.Arrays;
import java.util.List;

/**
 * The k nodes with the highest scores; of equal scores the first by rank. A heap with the worst node at its top: most of
 * many nodes are rejected by one comparison. Nodes are identified by their index in a list and by distinct ranks, so that
 * comparing them reads no other memory.
 */
final class TopK {
    private int[] indexes = {};
    private int[] ranks = {};
    private double[] scores = {};
    private int limit;
    private int size;

    /** Removes all nodes; the heap then holds up to {@code limit}, 1 or more. */
    void reset(int limit) {
        if (indexes.length < limit) {
            indexes = new int[limit];
            ranks = new int[limit];
            scores = new double[limit];
        }
        this.limit = limit;
        size = 0;
    }

    /** Whether {@link #add} would keep a node with this score. */
    boolean accepts(int rank, double score) {
        return size < limit || worse(scores[0], ranks[0], score, rank);
    }

    /** The lowest score in the heap; negative infinity while the heap is not full. */
    double worst() {
        return size < limit ? Double.NEGATIVE_INFINITY : scores[0];
    }

    void add(int index, int rank, double score) {
        if (size < limit) {
            up(size++, index, rank, score);
        } else if (worse(scores[0], ranks[0], score, rank)) {
            down(size, index, rank, score);
        }
    }

    private static boolean worse(double score, int rank, double other, int otherRank) {
        return score < other || (score == other && rank > otherRank);
    }

    private void up(int from, int index, int rank, double score) {
        int at = from;
        while (at > 0) {
            int parent = (at - 1) / 2;
            if (!worse(score, rank, scores[parent], ranks[parent])) {
                break;
            }
            move(parent, at);
            at = parent;
        }
        set(at, index, rank, score);
    }

    /** Replaces the worst of the first {@code size}. */
    private void down(int size, int index, int rank, double score) {
        int at = 0;
        for (int child = 1; child < size; child = 2 * at + 1) {
            if (child + 1 < size && worse(scores[child + 1], ranks[child + 1], scores[child], ranks[child])) {
                child++;
            }
            if (!worse(scores[child], ranks[child], score, rank)) {
                break;
            }
            move(child, at);
            at = child;
        }
        set(at, index, rank, score);
    }

    private void move(int from, int to) {
        set(to, indexes[from], ranks[from], scores[from]);
    }

    private void set(int at, int index, int rank, double score) {
        indexes[at] = index;
        ranks[at] = rank;
        scores[at] = score;
    }

    /** The names of the nodes, best first. The heap must be reset before its next use. */
    List<String> sorted(List<String> names) {
        for (int last = size - 1; last > 0; last--) {
            int index = indexes[last];
            int rank = ranks[last];
            double score = scores[last];
            move(0, last);
            down(last, index, rank, score);
        }
        var best = new String[size];
        for (int i = 0; i < size; i++) {
            best[i] = names.get(indexes[i]);
        }
        return Arrays.asList(best);
    }
}
