package io.aliquot.scheduler.ledger;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.scheduler.placement.Demand;
import io.aliquot.scheduler.placement.GpuModels;
import io.aliquot.scheduler.placement.Judge;
import io.aliquot.scheduler.placement.Market;
import io.aliquot.scheduler.placement.PodAsk;
import io.aliquot.scheduler.placement.Remembered;
import io.aliquot.scheduler.placement.Room;
import io.aliquot.scheduler.placement.Term;
import io.aliquot.scheduler.placement.Ways;
import io.aliquot.scheduler.placement.Ways.Way;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
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
final class Judging<P> {
    /** Pods that are known to have come, so that one that comes again and again is counted once. */
    private static final int MOST_PODS = 20_000;
    /** Places that are remembered until the judge has a new edition, some 350 bytes each. */
    private static final int MOST_PLACES = Remembered.most(1 << 18, 350);

    final GpuModels models = new GpuModels();

    private final Judge<P> judge;
    /** By their numbers. */
    private final Map<Integer, NodeAccount> changed = new ConcurrentHashMap<>();

    private final Cache<String, Boolean> came =
            Caffeine.newBuilder().maximumSize(MOST_PODS).executor(Runnable::run).build();

    /** The judge's, when it was last told of something. */
    private volatile int edition = -1;

    private volatile Market market = Market.STILL;
    /** The pods that were there before the first came are known. */
    private volatile boolean begun;

    // Guarded by this.

    private final Map<Integer, State> told = new HashMap<>();
    private final Map<Place, P> places = new HashMap<>();
    private final Map<List<P>, Menu> menus = new HashMap<>();

    /** What an account looked like after so many changes; empty where it takes no pods. */
    record State(long changes, Optional<Room> room) {}

    private record Place(Demand demand, Room before, Room after) {}

    /**
     * How much the judge liked the best of some places.
     *
     * @param score infinite where nobody has looked yet
     * @param priced the most that one of them cost by prices, then or before
     * @param least the least that one's cost grows by for each unit of the market's weight
     * @param most the most
     */
    private record Liking(Market market, double score, double priced, double least, double most) {
        private static final Liking UNSEEN = new Liking(Market.STILL, Double.POSITIVE_INFINITY, 0, 0, 0);

        boolean isOf(Market now) {
            return market == now && score < Double.POSITIVE_INFINITY;
        }

        double atMost(Market now) {
            return market == now ? score : now.atMost(score, market, priced, least, most);
        }
    }

    /**
     * The places of a node that may be the best for a pod, until the judge has a new edition. Nodes are often alike in
     * this, however different they are: they share one, which is scored once for all of them.
     */
    final class Menu {
        final int edition;
        private final List<P> places;
        /** When it was last looked at. */
        private volatile Liking last = Liking.UNSEEN;

        private Menu(int edition, List<P> places) {
            this.edition = edition;
            this.places = places;
        }

        /** No less than {@link #score}, for less. */
        double atMost(Market now) {
            return last.atMost(now);
        }

        /** How much the judge likes the best of them just now; not a number where it has learnt more since. */
        double score() {
            Liking known = last;
            return known.isOf(market) ? known.score : look();
        }

        private double look() {
            synchronized (Judging.this) {
                if (edition != Judging.this.edition) {
                    return Double.NaN;
                }
                double priced = 0;
                double least = Double.POSITIVE_INFINITY;
                double most = Double.NEGATIVE_INFINITY;
                double score = judge.score(places.get(best(places)));
                for (P place : places) {
                    priced = Math.max(priced, judge.priced(place));
                    least = Math.min(least, judge.weighed(place));
                    most = Math.max(most, judge.weighed(place));
                }
                last = new Liking(market, score, priced, least, most);
                return score;
            }
        }

        /** What that is made of; nothing where the judge has learnt more since. */
        List<Term> terms() {
            synchronized (Judging.this) {
                return edition != Judging.this.edition ? List.of() : judge.terms(places.get(best(places)));
            }
        }
    }

    /** What a node offers a pod, as the judge sees it. */
    final class Judged extends Offer.Fits {
        final Menu menu;
        /** What is added to the menu's score for the node. */
        final double tie;

        private Judged(double fullness, Menu menu, double tie) {
            super(fullness);
            this.menu = menu;
            this.tie = tie;
        }

        /** How much the judge likes it just now; not a number where it has learnt more since. */
        double score() {
            return menu.score() + tie;
        }
    }

    Judging(Judge<P> judge) {
        this.judge = judge;
    }

    /** Another number whenever nodes have to be judged again. */
    int edition() {
        return edition;
    }

    Market market() {
        return market;
    }

    /** To be called with the account's lock held. */
    void changed(NodeAccount account) {
        changed.put(account.number, account);
    }

    /** Tells the judge of all that has changed. Not to be called with an account's lock held. */
    void update() {
        var news = new TreeMap<Integer, State>();
        for (Integer number : List.copyOf(changed.keySet())) {
            NodeAccount account = changed.remove(number);
            if (account != null) {
                news.put(number, account.state());
            }
        }
        synchronized (this) {
            news.forEach(this::tell);
            int now = judge.edition();
            if (now != edition) {
                edition = now;
                forget();
            }
            market = judge.market();
        }
    }

    private void tell(Integer number, State now) {
        State before = told.get(number);
        if (before != null && before.changes() >= now.changes()) {
            return;
        }
        told.put(number, now);
        Optional<Room> last = before == null ? Optional.empty() : before.room();
        if (!last.equals(now.room())) {
            last.ifPresent(judge::left);
            now.room().ifPresent(judge::entered);
        }
    }

    /**
     * A pod is to be placed; before the first all that are there already were.
     *
     * @param there in the order in which they came
     */
    void arrives(String uid, PodAsk ask, Supplier<Collection<PodAsk>> there) {
        if (came.asMap().putIfAbsent(uid, true) != null) {
            return;
        }
        // Looked for without the lock: those who are asked have theirs.
        Collection<PodAsk> earlier = begun ? List.of() : there.get();
        synchronized (this) {
            if (!begun) {
                begun = true;
                earlier.forEach(pod -> judge.arrives(models.demand(pod)));
            }
            judge.arrives(models.demand(ask));
        }
    }

    /**
     * What a node offers that a pod fits on in these ways.
     *
     * @param fullness of the node then
     */
    synchronized Judged fits(double fullness, Ways ways) {
        Menu menu = menus.computeIfAbsent(front(places(ways)), list -> new Menu(edition, list));
        return new Judged(fullness, menu, judge.tie(ways.before()));
    }

    /** The one that the judge likes best. */
    synchronized Way choice(Ways ways) {
        return ways.list().get(best(places(ways)));
    }

    private List<P> places(Ways ways) {
        var list = new ArrayList<P>(ways.list().size());
        for (Way way : ways.list()) {
            list.add(place(new Place(ways.demand(), ways.before(), way.after())));
        }
        return list;
    }

    private P place(Place place) {
        if (places.size() >= MOST_PLACES) {
            forget();
        }
        return places.computeIfAbsent(place, any -> judge.weigh(any.demand(), any.before(), any.after()));
    }

    /** Those that no other outdoes, the Pareto front; of equals the first. */
    private List<P> front(List<P> places) {
        var front = new ArrayList<P>(places.size());
        for (P place : places) {
            if (!outdone(place, front)) {
                front.removeIf(other -> judge.outdoes(place, other));
                front.add(place);
            }
        }
        return List.copyOf(front);
    }

    private boolean outdone(P place, List<P> by) {
        for (P other : by) {
            if (judge.outdoes(other, place)) {
                return true;
            }
        }
        return false;
    }

    private void forget() {
        places.clear();
        menus.clear();
    }

    private int best(List<P> list) {
        int best = 0;
        double most = list.size() > 1 ? judge.score(list.get(0)) : 0;
        for (int i = 1; i < list.size(); i++) {
            P place = list.get(i);
            if (judge.atMost(place) > most) {
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
