package io.aliquot.scheduler.simulate;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.SplittableRandom;
import org.jspecify.annotations.Nullable;

/*
 * Nodes that are alike share one state, and what a policy thinks of a demand on a state is kept until the policy has a
 * new edition. A placement makes one new state, so that of the few hundred that there are at a time one is scored for
 * each pod, not all; the rest is a scan. 11,000 pods on 1,213 nodes take a second or so.
 */
/** Nodes that pods are offered to one by one. Not for several threads. */
final class Replay {
    /** Nodes of one state, and what the policy thinks of each demand there. */
    private static final class Group {
        final NodeState state;
        /** Of each demand, by its number: the score, and the GPU; −1 where it doesn't fit. */
        final double[] scores;

        final int[] gpus;
        /** Which edition of the policy said so; −1 for none yet. */
        final int[] editions;

        final double tie;
        /** Their numbers. */
        final PriorityQueue<Integer> nodes = new PriorityQueue<>();

        Group(NodeState state, int demands, double tie) {
            this.state = state;
            this.tie = tie;
            this.scores = new double[demands];
            this.gpus = new int[demands];
            this.editions = new int[demands];
            Arrays.fill(editions, -1);
        }
    }

    private static final int NOWHERE = -1;

    private final Policy policy;
    private final int demands;
    private final SplittableRandom random;
    private final Map<NodeState, Group> groups = new HashMap<>();
    /** Those with nodes, in an order that depends on nothing but what happened. */
    private final List<Group> live = new ArrayList<>();

    private long allocated;

    Replay(List<NodeModel> nodes, int demands, Policy policy, long seed) {
        this.policy = policy;
        this.demands = demands;
        this.random = new SplittableRandom(seed);
        for (int node = 0; node < nodes.size(); node++) {
            enter(node, NodeState.empty(nodes.get(node)));
        }
    }

    /** GPU that is allocated, in thousandths. */
    long allocated() {
        return allocated;
    }

    /** A state and how many nodes are in it. */
    record Alike(NodeState state, int nodes) {}

    List<Alike> nodes() {
        return live.stream()
                .map(group -> new Alike(group.state, group.nodes.size()))
                .toList();
    }

    /** Places a demand; false if it fits nowhere. */
    boolean offer(Demand demand) {
        policy.arrives(demand);
        Group group = policy.draws() ? draw(demand) : best(demand);
        if (group == null) {
            return false;
        }
        int gpu = policy.draws() ? drawGpu(demand, group.state) : group.gpus[demand.number()];
        enter(leave(group), group.state.with(demand, gpu));
        allocated += demand.total();
        return true;
    }

    private @Nullable Group draw(Demand demand) {
        Group drawn = null;
        int fitting = 0;
        for (Group group : live) {
            if (group.state.fits(demand)) {
                fitting += group.nodes.size();
                if (random.nextInt(fitting) < group.nodes.size()) {
                    drawn = group;
                }
            }
        }
        return drawn;
    }

    private int drawGpu(Demand demand, NodeState state) {
        int first = state.fullestWith(demand.share());
        boolean part = demand.gpus() == 1;
        return part ? first + random.nextInt(state.gpus() - first) : first;
    }

    private @Nullable Group best(Demand demand) {
        int edition = policy.edition();
        int number = demand.number();
        Group best = null;
        for (Group group : live) {
            if (group.editions[number] != edition) {
                group.editions[number] = edition;
                look(demand, group);
            }
            if (group.gpus[number] != NOWHERE && (best == null || better(group, best, number))) {
                best = group;
            }
        }
        return best;
    }

    private static boolean better(Group one, Group other, int demand) {
        if (one.scores[demand] != other.scores[demand]) {
            return one.scores[demand] > other.scores[demand];
        }
        return one.tie != other.tie ? one.tie < other.tie : one.nodes.element() < other.nodes.element();
    }

    /** Scores a demand on each GPU that would make a difference; of equal ones the fullest is taken. */
    private void look(Demand demand, Group group) {
        NodeState state = group.state;
        int number = demand.number();
        group.gpus[number] = NOWHERE;
        if (!state.fits(demand)) {
            return;
        }
        int first = demand.gpus() == 0 ? 0 : state.fullestWith(demand.share());
        int last = demand.gpus() == 1 ? state.gpus() - 1 : first;
        for (int gpu = first; gpu <= last; gpu++) {
            if (gpu > first && state.left(gpu) == state.left(gpu - 1)) {
                continue;
            }
            double score = policy.score(demand, state, state.with(demand, gpu));
            if (group.gpus[number] == NOWHERE || score > group.scores[number]) {
                group.scores[number] = score;
                group.gpus[number] = gpu;
            }
        }
    }

    private void enter(int node, NodeState state) {
        Group group = groups.computeIfAbsent(state, any -> new Group(any, demands, policy.tie(any)));
        if (group.nodes.isEmpty()) {
            live.add(group);
        }
        group.nodes.add(node);
    }

    /** Takes the first of its nodes out of a group. */
    private int leave(Group group) {
        int node = group.nodes.remove();
        if (group.nodes.isEmpty()) {
            groups.remove(group.state);
            live.remove(group);
        }
        return node;
    }
}
