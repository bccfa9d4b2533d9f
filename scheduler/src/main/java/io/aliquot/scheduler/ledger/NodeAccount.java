package io.aliquot.scheduler.ledger;

import io.aliquot.api.Gpu;
import io.aliquot.scheduler.ledger.NodeFacts.LeftOut;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.placement.Amount;
import io.aliquot.scheduler.placement.Card;
import io.aliquot.scheduler.placement.Choice;
import io.aliquot.scheduler.placement.Choice.Chosen;
import io.aliquot.scheduler.placement.Choice.Refused;
import io.aliquot.scheduler.placement.Chooser;
import io.aliquot.scheduler.placement.GpuRoom;
import io.aliquot.scheduler.placement.PodAsk;
import io.aliquot.scheduler.placement.Scores;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * One node's GPUs and the claims on them. Sums per GPU are kept up to date with each claim, and by UUID whether or not
 * the inventory lists the GPU just now, so that one that disappears and comes back is no emptier. Callers synchronize
 * on it.
 */
final class NodeAccount {
    static final LeftOut UNKNOWN = new LeftOut("the Aliquot scheduler does not know the node yet");
    private static final LeftOut UNSERVED = new LeftOut("the node's device plugin is not ready");

    /** Of no other node. */
    final int number;

    private final Map<String, Claim> claims = new HashMap<>();
    private final Map<String, Tally> tallies = new HashMap<>();
    private long cpuMillis;
    private long memoryBytes;
    private NodeFacts facts = UNKNOWN;
    private boolean served = true;
    private volatile long changes;

    NodeAccount(int number) {
        this.number = number;
    }

    /** Sums over all claims on a GPU. */
    private static final class Tally {
        private long memoryMiB;
        private int cores;
        private int slots;
        private int exclusive;
        private int pods;

        void add(Amount amount, int sign) {
            memoryMiB += sign * amount.memoryMiB();
            cores += sign * amount.cores();
            slots += sign * amount.slots();
            exclusive += amount.exclusive() ? sign : 0;
            pods += sign;
        }

        Amount sum() {
            return new Amount(memoryMiB, cores, slots, exclusive > 0);
        }
    }

    /**
     * How often anything has changed that a pod is answered by. Whoever is not synchronized may see it change and change
     * back while a question is answered.
     */
    long changes() {
        return changes;
    }

    @SuppressWarnings("NonAtomicVolatileUpdate") // callers synchronize
    private void changed() {
        changes++;
    }

    NodeFacts facts() {
        return facts;
    }

    void setFacts(NodeFacts facts) {
        this.facts = facts;
        changed();
    }

    /** Whether its agent answers the kubelet; assumed until told otherwise. */
    void setServed(boolean served) {
        this.served = served;
        changed();
    }

    boolean served() {
        return served;
    }

    Optional<Claim> claim(String uid) {
        return Optional.ofNullable(claims.get(uid));
    }

    Iterable<Claim> claims() {
        return claims.values();
    }

    void put(Claim claim) {
        remove(claim.pod.uid());
        claims.put(claim.pod.uid(), claim);
        add(claim, 1);
    }

    Optional<Claim> remove(String uid) {
        Claim claim = claims.remove(uid);
        if (claim != null) {
            add(claim, -1);
        }
        return Optional.ofNullable(claim);
    }

    private void add(Claim claim, int sign) {
        claim.perGpu.forEach((uuid, amount) -> {
            Tally tally = tallies.computeIfAbsent(uuid, any -> new Tally());
            tally.add(amount, sign);
            if (tally.pods == 0) {
                tallies.remove(uuid);
            }
        });
        cpuMillis += sign * claim.requests.cpuMillis();
        memoryBytes += sign * claim.requests.memoryBytes();
        changed();
    }

    /** What all claims together take of a GPU. */
    Amount taken(String uuid) {
        Tally tally = tallies.get(uuid);
        return tally == null ? Amount.NOTHING : tally.sum();
    }

    /** What the node would say to a pod, its present claim on this node and those of others set aside. */
    synchronized Offer offer(String uid, PodAsk ask, Set<String> without) {
        long before = changes;
        Choice choice = chooseWithout(uid, ask, without);
        // What was set aside was put back.
        changes = before;
        return choice instanceof Chosen chosen
                ? new Offer.Fits(Scores.fullness(chosen.fullness(), hostFullness()))
                : new Offer.Refuses(((Refused) choice).reason(), ((Refused) choice).hopeless());
    }

    /** What a pod would get here, its present claim on this node set aside. */
    Choice choose(String uid, PodAsk ask) {
        if (facts instanceof Sharing sharing) {
            if (!served) {
                return new Refused(UNSERVED.reason(), true);
            }
            Optional<Claim> own = remove(uid);
            List<GpuRoom> rooms = rooms();
            own.ifPresent(this::put);
            return Chooser.choose(ask, rooms, ask.gpuPlacement().orElse(sharing.gpuPlacement()));
        }
        return new Refused(((LeftOut) facts).reason(), true);
    }

    /** As {@link #choose}, with these pods' claims set aside too. */
    Choice chooseWithout(String uid, PodAsk ask, Set<String> without) {
        var aside = new ArrayList<Claim>();
        for (String other : without) {
            remove(other).ifPresent(aside::add);
        }
        try {
            return choose(uid, ask);
        } finally {
            aside.forEach(this::put);
        }
    }

    /** Every GPU that the node shares. */
    List<GpuRoom> rooms() {
        if (facts instanceof Sharing sharing) {
            List<GpuRoom> rooms = new ArrayList<>(sharing.cards().list().size());
            for (Card card : sharing.cards().list()) {
                rooms.add(new GpuRoom(card, taken(card.gpu().uuid())));
            }
            return rooms;
        }
        return List.of();
    }

    /** How much of the host's CPU and memory is requested, 0 to 1. */
    double hostFullness() {
        if (facts instanceof Sharing sharing) {
            return (share(cpuMillis, sharing.allocatable().cpuMillis())
                            + share(memoryBytes, sharing.allocatable().memoryBytes()))
                    / 2;
        }
        return 1;
    }

    private static double share(long part, long whole) {
        return whole <= 0 ? 1 : Math.min(1, (double) part / whole);
    }

    /** What there isn't for a claim to grow to this; empty where it fits, or doesn't grow. */
    Optional<String> lacking(Claim claim, Map<String, Amount> wanted) {
        remove(claim.pod.uid());
        List<GpuRoom> rooms = rooms();
        put(claim);
        for (Map.Entry<String, Amount> gpu : wanted.entrySet()) {
            if (!gpu.getValue().equals(claim.perGpu.get(gpu.getKey()))) {
                Optional<GpuRoom> room = rooms.stream()
                        .filter(one -> one.gpu().uuid().equals(gpu.getKey()))
                        .findFirst();
                if (room.isEmpty()) {
                    return Optional.of("its node shares GPU " + gpu.getKey() + " no more");
                }
                if (!holds(room.get(), gpu.getValue())) {
                    return Optional.of("GPU " + gpu.getKey() + " has not as much: others hold "
                            + words(room.get().taken()) + ", and this pod is to hold " + words(gpu.getValue()));
                }
            }
        }
        return Optional.empty();
    }

    private static boolean holds(GpuRoom room, Amount amount) {
        return room.holds(amount.memoryMiB(), amount.cores(), amount.slots(), amount.exclusive());
    }

    private static String words(Amount amount) {
        return amount.memoryMiB() + " MiB and " + amount.cores() + " % of the cores";
    }

    /** Those of the claim's GPUs of which there is less than bound pods take together. */
    List<String> oversold(Claim claim) {
        var oversold = new ArrayList<String>();
        if (facts instanceof Sharing sharing) {
            for (Card card : sharing.cards().list()) {
                Tally all = tallies.get(card.gpu().uuid());
                if (all != null
                        && claim.perGpu.containsKey(card.gpu().uuid())
                        && tooMuch(all, card)
                        && tooMuch(bound(card.gpu()), card)) {
                    oversold.add(card.gpu().uuid());
                }
            }
        }
        return oversold;
    }

    private static boolean tooMuch(Tally tally, Card card) {
        return tally.memoryMiB > card.memoryMiB()
                || tally.cores > card.cores()
                || (tally.exclusive > 0 && tally.pods > 1);
    }

    /** Whether these pods together hold more of a GPU than it has. */
    boolean oversold(String gpu, Collection<BoundPod> pods) {
        var tally = new Tally();
        pods.forEach(pod -> Optional.ofNullable(pod.perGpu().get(gpu)).ifPresent(amount -> tally.add(amount, 1)));
        return facts instanceof Sharing sharing
                && sharing.cards().list().stream()
                        .anyMatch(card -> card.gpu().uuid().equals(gpu) && tooMuch(tally, card));
    }

    /** Without what is merely reserved. */
    private Tally bound(Gpu gpu) {
        var tally = new Tally();
        for (Claim claim : claims.values()) {
            Amount amount = claim.perGpu.get(gpu.uuid());
            if (amount != null && claim.mayBeBound()) {
                tally.add(amount, 1);
            }
        }
        return tally;
    }

    /** The pods that have a part of this GPU, or may have it. */
    Set<PodId> holders(String uuid) {
        var holders = new LinkedHashSet<PodId>();
        for (Claim claim : claims.values()) {
            if (claim.perGpu.containsKey(uuid) && claim.mayBeBound()) {
                holders.add(claim.pod);
            }
        }
        return holders;
    }
}
