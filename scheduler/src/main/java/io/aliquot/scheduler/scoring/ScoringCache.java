package io.aliquot.scheduler.scoring;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.scheduler.ledger.Feasibility;
import io.aliquot.scheduler.ledger.NodeAccountView;
import io.aliquot.scheduler.ledger.NodeAccountView.Capacity;
import io.aliquot.scheduler.ledger.NodeObserver;
import io.aliquot.scheduler.placement.CandidateChooser;
import io.aliquot.scheduler.placement.CandidatePlacements;
import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.GpuModels;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.function.Supplier;

/*
 * The judge wants to know every node's room, and is asked for some pods only, often for none at all. So an account that
 * changes only notes that it has; what its room is now is looked up when somebody is to be judged, and told to the judge
 * in the order of the accounts' numbers, so that equal histories give equal choices.
 *
 * Locks: an account's may be held when this one is taken, never the other way. So rooms are read first and told then, and
 * whoever told of a later change of the same account goes first.
 *
 * Nodes of one kind are often alike, and a place is the same on each of them: what the judge has said is kept by the room
 * before and after, and with each node's offer, so that a node that has not changed costs no look-up.
 */
/**
 * Keeps a judge told of all nodes and pods, and asks it. Thread-safe.
 *
 * @param <P> what the judge knows of a place
 */
final class ScoringCache<P> implements NodeObserver, CandidateChooser {
    /** Pods that are known to have come, so that one that comes again and again is counted once. */
    private static final int MOST_PODS = 20_000;
    /** Places that are remembered until the judge has a new edition, some 350 bytes each. */
    private static final int MOST_PLACES = CacheSizes.limit(1 << 18, 350);

    final GpuModels models;

    private final ScoringPolicy<P> judge;
    private final NodeIndex index;
    /** By their numbers. */
    private final ConcurrentSkipListMap<Integer, NodeAccountView> changed = new ConcurrentSkipListMap<>();

    private final Cache<String, Boolean> came =
            Caffeine.newBuilder().maximumSize(MOST_PODS).executor(Runnable::run).build();

    /** The judge's, when it was last told of something. */
    private volatile int edition = -1;

    private volatile PriceSnapshot market = PriceSnapshot.STILL;
    /** The pods that were there before the first came are known. */
    private volatile boolean begun;

    // Guarded by this.

    private final Map<Integer, Capacity> told = new HashMap<>();
    /** By demand, and by the room before and after. */
    private final Map<DemandVector, Map<FreeCapacity, Map<FreeCapacity, P>>> places = new HashMap<>();

    private int placesKnown;
    /** Places that the judge has evaluated so far. */
    private long evaluations;

    private final Map<List<P>, Menu> menus = new HashMap<>();
    /** To work in: new ones for each node that has changed would be garbage for each pod. */
    private final List<P> looked = new ArrayList<>();

    private final List<P> front = new ArrayList<>();

    /**
     * The places of a node that may be the best for a pod, until the judge has a new edition. Nodes are often alike in
     * this, however different they are: they share one, which is scored once for all of them.
     */
    final class Menu {
        final int edition;
        /** What a place's cost grows by for each unit of the market's weight: the least of them, and the most. */
        final double least;

        final double most;
        private final List<P> places;

        // What was seen when the judge last looked, guarded by Judging.this.

        private PriceSnapshot seenIn = PriceSnapshot.STILL;
        private boolean seen;
        /** How much it liked the best of them. */
        private double score;
        /** The most that one of them cost by prices, then or before. */
        private double priced;

        private Menu(int edition, List<P> places) {
            this.edition = edition;
            this.places = places;
            double low = Double.POSITIVE_INFINITY;
            double high = Double.NEGATIVE_INFINITY;
            for (P place : places) {
                low = Math.min(low, judge.idleCost(place));
                high = Math.max(high, judge.idleCost(place));
            }
            this.least = low;
            this.most = high;
        }

        /** How much the judge likes the best of them just now; not a number where it has learnt more since. */
        double score() {
            synchronized (ScoringCache.this) {
                if (edition != ScoringCache.this.edition) {
                    return Double.NaN;
                }
                if (!seen || seenIn != market) {
                    look();
                }
                return score;
            }
        }

        /** The same; what was seen is noted for the node of this number. */
        double score(CachedResults notes, int number) {
            synchronized (ScoringCache.this) {
                double now = score();
                if (!Double.isNaN(now)) {
                    notes.saw(number, seenIn, now, priced);
                }
                return now;
            }
        }

        private void look() {
            score = judge.score(places.get(best(places)));
            priced = 0;
            for (int i = 0; i < places.size(); i++) {
                priced = Math.max(priced, judge.priceCost(places.get(i)));
            }
            seenIn = market;
            seen = true;
        }

        /** What that is made of; nothing where the judge has learnt more since. */
        List<ScoreTerm> terms() {
            synchronized (ScoringCache.this) {
                return edition != ScoringCache.this.edition ? List.of() : judge.terms(places.get(best(places)));
            }
        }
    }

    /** What a node offers a pod, as the judge sees it. */
    final class Evaluated extends Feasibility.Fits {
        final Menu menu;
        /** What is added to the menu's score for the node. */
        final double tie;
        /** Places that the judge evaluated for this answer; it remembered the others. */
        final int evaluations;

        private Evaluated(double fullness, Menu menu, double tie, int evaluations) {
            super(fullness);
            this.menu = menu;
            this.tie = tie;
            this.evaluations = evaluations;
        }

        /** How much the judge likes it just now; not a number where it has learnt more since. */
        double score() {
            return menu.score() + tie;
        }
    }

    /**
     * A cache for one ledger.
     *
     * @param models the ledger's
     * @param index is told which nodes are dropped
     */
    ScoringCache(ScoringPolicy<P> judge, GpuModels models, NodeIndex index) {
        this.judge = judge;
        this.models = models;
        this.index = index;
    }

    /** Another number whenever nodes have to be judged again. */
    int modelVersion() {
        return edition;
    }

    PriceSnapshot market() {
        return market;
    }

    @Override
    public void nodeChanged(NodeAccountView account) {
        changed.put(account.number(), account);
    }

    @Override
    public void nodeClosed(String node) {
        index.forget(node);
    }

    @Override
    public void refresh() {
        update();
    }

    /** Tells the judge of all that has changed. Not to be called with an account's lock held. */
    void update() {
        for (var next = changed.pollFirstEntry(); next != null; next = changed.pollFirstEntry()) {
            Capacity state = next.getValue().capacity();
            synchronized (this) {
                tell(next.getKey(), state);
            }
        }
        synchronized (this) {
            int now = judge.modelVersion();
            if (now != edition) {
                edition = now;
                forget();
            }
            market = judge.prices();
        }
    }

    private void tell(Integer number, Capacity now) {
        Capacity before = told.get(number);
        if (before != null && before.changes() >= now.changes()) {
            return;
        }
        told.put(number, now);
        Optional<FreeCapacity> last = before == null ? Optional.empty() : before.free();
        if (!last.equals(now.free())) {
            last.ifPresent(judge::left);
            now.free().ifPresent(judge::entered);
        }
    }

    /**
     * A pod is to be placed; before the first all that are there already were.
     *
     * @param there in the order in which they came
     */
    void observe(String uid, PodGpuRequest ask, Supplier<Collection<PodGpuRequest>> there) {
        if (came.asMap().putIfAbsent(uid, true) != null) {
            return;
        }
        // Looked for without the lock: those who are asked have theirs.
        Collection<PodGpuRequest> earlier = begun ? List.of() : there.get();
        synchronized (this) {
            if (!begun) {
                begun = true;
                earlier.forEach(pod -> judge.observe(models.demand(pod)));
            }
            judge.observe(models.demand(ask));
        }
    }

    /**
     * What a node offers that a pod fits on in these ways.
     *
     * @param fullness of the node then
     */
    synchronized Evaluated fits(double fullness, CandidatePlacements ways) {
        long before = evaluations;
        Menu menu = menu(places(ways));
        return new Evaluated(fullness, menu, judge.tieBreak(ways.before()), (int) (evaluations - before));
    }

    @Override
    public synchronized int choose(CandidatePlacements ways) {
        return ways.gpu(best(places(ways)));
    }

    /** Valid until asked for again. */
    private List<P> places(CandidatePlacements ways) {
        if (placesKnown >= MOST_PLACES) {
            forget();
        }
        Map<FreeCapacity, P> known = places.computeIfAbsent(ways.demand(), any -> new HashMap<>())
                .computeIfAbsent(ways.before(), any -> new HashMap<>());
        looked.clear();
        for (int way = 0; way < ways.count(); way++) {
            P place = known.get(ways.after(way));
            if (place == null) {
                FreeCapacity after = ways.kept(way);
                place = judge.evaluate(ways.demand(), ways.before(), after);
                known.put(after, place);
                placesKnown++;
                evaluations++;
            }
            looked.add(place);
        }
        return looked;
    }

    /** Of those that no other outdoes, the Pareto front; of equals the first. */
    private Menu menu(List<P> places) {
        front.clear();
        for (int i = 0; i < places.size(); i++) {
            P place = places.get(i);
            if (!outdone(place, front)) {
                for (int other = front.size() - 1; other >= 0; other--) {
                    if (judge.dominates(place, front.get(other))) {
                        front.remove(other);
                    }
                }
                front.add(place);
            }
        }
        Menu known = menus.get(front);
        if (known == null) {
            List<P> list = List.copyOf(front);
            known = new Menu(edition, list);
            menus.put(list, known);
        }
        return known;
    }

    private boolean outdone(P place, List<P> by) {
        for (int i = 0; i < by.size(); i++) {
            if (judge.dominates(by.get(i), place)) {
                return true;
            }
        }
        return false;
    }

    private void forget() {
        places.clear();
        placesKnown = 0;
        menus.clear();
    }

    private int best(List<P> list) {
        int best = 0;
        double most = list.size() > 1 ? judge.score(list.get(0)) : 0;
        for (int i = 1; i < list.size(); i++) {
            P place = list.get(i);
            if (judge.upperBound(place) > most) {
                double score = judge.score(place);
                if (score > most) {
                    best = i;
                    most = score;
                }
            }
        }
        return best;
    }
}
