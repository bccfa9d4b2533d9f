package io.aliquot.scheduler.simulate;

import io.aliquot.scheduler.placement.Demand;
import io.aliquot.scheduler.placement.Room;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.SplittableRandom;

/*
 * Nodes that are alike form a group, and what a policy says of a demand's places there is kept until the policy has a new
 * edition. A placement makes one new group at most, so that of the few hundred that there are at a time few are weighed for
 * each pod; the rest is a scan.
 */
/**
 * Nodes that pods are offered to one by one. Not for several threads.
 *
 * @param <P> what the policy knows of a place
 */
final class Replay<P> {
    /** A place on a node: the first of a demand's GPUs, and what the policy says of it. */
    private record Place<P>(int gpu, P weighed) {}

    /** All places of a demand on a node that make a difference. */
    private record Places<P>(int edition, List<Place<P>> list) {}

    /** Nodes that are alike. */
    private static final class Group<P> {
        final Room room;
        final double tie;
        final Map<Demand, Places<P>> places = new HashMap<>();
        /** Their numbers. */
        final PriorityQueue<Integer> nodes = new PriorityQueue<>();

        Group(Room room, double tie) {
            this.room = room;
            this.tie = tie;
        }
    }

    private final Policy<P> policy;
    private final SplittableRandom random;
    private final Map<Room, Group<P>> groups = new HashMap<>();
    /** In an order that depends on nothing but what happened. */
    private final List<Group<P>> live = new ArrayList<>();

    private long allocated;

    Replay(List<Room.Shape> nodes, Policy<P> policy, long seed) {
        this.policy = policy;
        this.random = new SplittableRandom(seed);
        for (int node = 0; node < nodes.size(); node++) {
            enter(node, Room.of(nodes.get(node)));
        }
    }

    /** GPU that is allocated, in thousandths. */
    long allocated() {
        return allocated;
    }

    /** A room and how many nodes have it. */
    record Alike(Room room, int nodes) {}

    List<Alike> nodes() {
        return live.stream()
                .map(group -> new Alike(group.room, group.nodes.size()))
                .toList();
    }

    /** Places a demand; false if it fits nowhere. */
    boolean offer(Demand demand) {
        policy.arrives(demand);
        return policy.draws() ? draw(demand) : best(demand);
    }

    private void put(Demand demand, Group<P> group, int gpu) {
        int node = leave(group);
        enter(node, group.room.with(demand, gpu));
        allocated += group.room.takenBy(demand);
    }

    private boolean draw(Demand demand) {
        Group<P> drawn = null;
        int fitting = 0;
        for (Group<P> group : live) {
            if (group.room.fits(demand)) {
                fitting += group.nodes.size();
                if (random.nextInt(fitting) < group.nodes.size()) {
                    drawn = group;
                }
            }
        }
        if (drawn == null) {
            return false;
        }
        int drawnGpu = 0;
        int holding = 0;
        for (int gpu = 0; gpu < drawn.room.gpus() && demand.gpus() == 1; gpu++) {
            if (drawn.room.holds(gpu, demand) && random.nextInt(++holding) == 0) {
                drawnGpu = gpu;
            }
        }
        put(demand, drawn, drawnGpu);
        return true;
    }

    private boolean best(Demand demand) {
        int edition = policy.edition();
        Group<P> best = null;
        int gpu = 0;
        double most = 0;
        for (Group<P> group : live) {
            Places<P> places = group.places.get(demand);
            if (places == null || places.edition() != edition) {
                places = new Places<>(edition, weigh(demand, group.room));
                group.places.put(demand, places);
            }
            for (Place<P> place : places.list()) {
                double score = policy.score(place.weighed());
                // Of a node's equal places the first, which is the fullest GPU's.
                if (best == null || score > most || (score == most && group != best && before(group, best))) {
                    best = group;
                    gpu = place.gpu();
                    most = score;
                }
            }
        }
        if (best == null) {
            return false;
        }
        put(demand, best, gpu);
        return true;
    }

    private static <P> boolean before(Group<P> one, Group<P> other) {
        return one.tie != other.tie ? one.tie < other.tie : one.nodes.element() < other.nodes.element();
    }

    private List<Place<P>> weigh(Demand demand, Room room) {
        List<Place<P>> places = new ArrayList<>();
        if (room.fits(demand)) {
            if (demand.gpus() != 1) {
                places.add(new Place<>(0, policy.weigh(demand, room, 0)));
            } else {
                for (int gpu = 0; gpu < room.gpus(); gpu++) {
                    if (room.holds(gpu, demand) && (gpu == 0 || !room.alike(gpu, gpu - 1))) {
                        places.add(new Place<>(gpu, policy.weigh(demand, room, gpu)));
                    }
                }
            }
        }
        return places;
    }

    private void enter(int node, Room room) {
        Group<P> group = groups.computeIfAbsent(room, any -> new Group<>(any, policy.tie(any)));
        if (group.nodes.isEmpty()) {
            live.add(group);
        }
        group.nodes.add(node);
        policy.entered(room);
    }

    /** Takes the first of its nodes out of a group. */
    private int leave(Group<P> group) {
        int node = group.nodes.remove();
        if (group.nodes.isEmpty()) {
            groups.remove(group.room);
            live.remove(group);
        }
        policy.left(group.room);
        return node;
    }
}
