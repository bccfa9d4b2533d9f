package io.aliquot.scheduler.placement;

import io.aliquot.api.Numa;
import io.aliquot.api.Placement;
import io.aliquot.api.SharingMode;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.TreeSet;

/*
 * Which k of those GPUs that hold a container it gets. Three things are weighed, one after the other:
 *
 * - one NUMA domain, where the pod wants that: the best of the sets of each domain;
 * - the policy: the fullest (of equally full ones the smallest, so that large cards stay whole) or the emptiest.
 *   FRAGMENTATION has no order of single GPUs: of several it takes the fullest, and of one Ways makes the choice;
 * - the links, among those that the policy likes equally, which on a node with whole cards free are many.
 *
 * On a node shared as TOPOLOGY, and for a pod that wants it, the links come before the policy. Links count to GPUs that other containers of the pod
 * hold, too.
 */
/** Picks a container's GPUs among those that hold it. */
final class ContainerGpuSelector {
    private static final int[] NONE = new int[0];
    /** What one unit of a link's worth is above the fullness of all GPUs of a set. */
    private static final long LINK = 1L << 32;

    private final List<GpuFreeCapacity> rooms;
    private final int[] fullness;
    private final boolean[] held;
    private final Placement policy;
    private final boolean anyHeld;
    private final boolean wired;
    private final boolean linksFirst;

    /**
     * A picker.
     *
     * @param fullness of each room with what the pod's other containers hold
     * @param held whether another container of the pod holds a part of it
     * @param byLinks whether links are looked at
     * @param topology whether the pod wants them looked at first
     */
    ContainerGpuSelector(
            List<GpuFreeCapacity> rooms,
            int[] fullness,
            boolean[] held,
            Placement policy,
            boolean byLinks,
            boolean topology) {
        this.rooms = rooms;
        this.fullness = fullness;
        this.held = held;
        this.policy = policy;
        boolean any = false;
        for (boolean one : held) {
            any |= one;
        }
        this.anyHeld = any;
        GpuCapacity first = rooms.get(0).card;
        this.wired = byLinks && first.topology();
        this.linksFirst = wired && (topology || first.share == SharingMode.TOPOLOGY);
    }

    /** {@code k} of the candidates in ascending order; empty where NUMA domains are in the way. */
    int[] select(int[] candidates, int k, Optional<Numa> numa) {
        if (k > 1 && numa.isPresent()) {
            int[] best = NONE;
            for (int domain : domains(candidates)) {
                int[] those = Arrays.stream(candidates)
                        .filter(room -> rooms.get(room).card.gpu.numa() == domain)
                        .toArray();
                if (those.length >= k) {
                    int[] set = select(those, k);
                    if (best.length == 0 || better(set, best)) {
                        best = set;
                    }
                }
            }
            if (best.length > 0 || numa.get() == Numa.REQUIRED) {
                return best;
            }
        }
        return select(candidates, k);
    }

    /** Those that are known: a GPU whose domain is not told is in none with another. */
    private Iterable<Integer> domains(int[] candidates) {
        var domains = new TreeSet<Integer>();
        for (int room : candidates) {
            domains.add(rooms.get(room).card.gpu.numa());
        }
        domains.remove(-1);
        return domains;
    }

    private int[] select(int[] candidates, int k) {
        if (candidates.length == k) {
            return candidates;
        }
        if (linksFirst && (k > 1 || anyHeld)) {
            return linked(candidates, NONE, k, true);
        }
        int[] sorted = sortedByPolicy(candidates);
        int[] set = Arrays.copyOf(sorted, k);
        if (wired && (k > 1 || anyHeld) && byPolicy(sorted[k - 1], sorted[k]) == 0) {
            int from = k - 1;
            while (from > 0 && byPolicy(sorted[from - 1], sorted[k]) == 0) {
                from--;
            }
            int to = k + 1;
            while (to < sorted.length && byPolicy(sorted[to], sorted[k]) == 0) {
                to++;
            }
            int[] sure = Arrays.copyOf(sorted, from);
            int[] rest = linked(Arrays.copyOfRange(sorted, from, to), sure, k - from, false);
            System.arraycopy(rest, 0, set, from, rest.length);
        }
        Arrays.sort(set);
        return set;
    }

    private int[] sortedByPolicy(int[] candidates) {
        int[] sorted = candidates.clone();
        for (int i = 1; i < sorted.length; i++) {
            int room = sorted[i];
            int at = i;
            for (; at > 0 && byPolicy(room, sorted[at - 1]) < 0; at--) {
                sorted[at] = sorted[at - 1];
            }
            sorted[at] = room;
        }
        return sorted;
    }

    /** Below 0 where the policy likes {@code one} better. */
    private int byPolicy(int one, int other) {
        return byPolicy(policy, fullness[one], rooms.get(one), fullness[other], rooms.get(other));
    }

    /** The same as they are now. */
    static int byPolicy(Placement policy, GpuFreeCapacity room, GpuFreeCapacity other) {
        return byPolicy(policy, room.fullness, room, other.fullness, other);
    }

    private static int byPolicy(
            Placement policy, int fullness, GpuFreeCapacity room, int otherFullness, GpuFreeCapacity other) {
        return switch (policy) {
            case BINPACK, FRAGMENTATION ->
                fullness != otherFullness
                        ? Integer.compare(otherFullness, fullness)
                        : Integer.compare(room.card.gpu.memoryMiB(), other.card.gpu.memoryMiB());
            case SPREAD -> Integer.compare(fullness, otherFullness);
        };
    }

    /** Below 0 where {@code one} is the fuller, or as full and smaller. */
    static int byFullness(GpuFreeCapacity one, GpuFreeCapacity other) {
        return byPolicy(Placement.BINPACK, one, other);
    }

    /** The {@code k} best-linked candidates, links to {@code sure} ones and to the pod's others counted, too. */
    private int[] linked(int[] candidates, int[] sure, int k, boolean policyToo) {
        int n = candidates.length;
        long[] alone = new long[n];
        long[] pairs = new long[n * n];
        for (int i = 0; i < n; i++) {
            GpuCapacity card = rooms.get(candidates[i]).card;
            for (int room : sure) {
                alone[i] += LINK * card.linkScoreTo(rooms.get(room).card);
            }
            alone[i] += LINK * toHeld(card);
            if (policyToo) {
                alone[i] += switch (policy) {
                    case BINPACK, FRAGMENTATION -> fullness[candidates[i]];
                    case SPREAD -> -fullness[candidates[i]];
                };
            }
            for (int j = 0; j < i; j++) {
                long worth = LINK * card.linkScoreTo(rooms.get(candidates[j]).card);
                pairs[i * n + j] = worth;
                pairs[j * n + i] = worth;
            }
        }
        int[] set = new BestLinkedSet(n, k, alone, pairs).find();
        for (int i = 0; i < k; i++) {
            set[i] = candidates[set[i]];
        }
        return set;
    }

    private long toHeld(GpuCapacity card) {
        long worth = 0;
        for (int room = 0; anyHeld && room < held.length; room++) {
            if (held[room]) {
                worth += card.linkScoreTo(rooms.get(room).card);
            }
        }
        return worth;
    }

    /** Whether a set is better than another of as many, by the same as within a domain. */
    private boolean better(int[] set, int[] other) {
        int policy = Long.compare(liking(set), liking(other));
        int links = Long.compare(worth(set), worth(other));
        int first = linksFirst ? links : policy;
        return first != 0 ? first > 0 : (linksFirst ? policy : links) > 0;
    }

    /** How much the policy likes a set; the sum over its members, as the best of each come first. */
    private long liking(int[] set) {
        long liking = 0;
        for (int room : set) {
            liking += switch (policy) {
                case BINPACK, FRAGMENTATION ->
                    ((long) fullness[room] << 32) - rooms.get(room).card.gpu.memoryMiB();
                case SPREAD -> -(long) fullness[room];
            };
        }
        return liking;
    }

    private long worth(int[] set) {
        long worth = 0;
        for (int i = 0; wired && i < set.length; i++) {
            GpuCapacity card = rooms.get(set[i]).card;
            worth += toHeld(card);
            for (int j = 0; j < i; j++) {
                worth += card.linkScoreTo(rooms.get(set[j]).card);
            }
        }
        return worth;
    }
}
