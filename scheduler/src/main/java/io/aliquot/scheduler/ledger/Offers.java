package io.aliquot.scheduler.ledger;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.api.Placement;
import io.aliquot.scheduler.ledger.Judging.Liking;
import io.aliquot.scheduler.placement.HostLoad;
import io.aliquot.scheduler.placement.Market;
import io.aliquot.scheduler.placement.PodAsk;
import io.aliquot.scheduler.placement.Remembered;
import io.aliquot.scheduler.placement.Room;
import io.aliquot.scheduler.placement.Scores;
import io.aliquot.scheduler.placement.Term;
import io.aliquot.scheduler.placement.Ways;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.BiConsumer;
import org.jspecify.annotations.Nullable;

/*
 * Pods come in kinds: those of one template want the same, and a node says the same to all of them until something
 * changes there. Few nodes change between one pod and the next, however many nodes and running pods there are. So each
 * node counts its changes, and each kind remembers what every node last said to it and at which count: a node that has
 * not changed costs a look-up by name and a comparison, no lock, no garbage; one that has, its lock and one run of the
 * chooser over its GPUs. For 5,000 nodes that is 0.1 ms instead of some 3.
 *
 * What is remembered is true of the instant in which the count is read: a node counts before it lets go of its lock, and
 * an answer is worked out, and its count read, under that lock. No two nodes are ever at the same count, so that one that
 * is given the number of another that is gone is not taken for it. Racing writers may lose each other's answers, never mix
 * them, for an answer is one immutable object; a lost one is worked out again.
 *
 * A pod's own claim is set aside where it is asked about, so that what its kind remembers of that one node is not true
 * of it: that node is asked itself.
 */
/** What nodes would say to one pod. For one request: it knows where the pod's claim was when it was made. */
public final class Offers {
    /** So many answers are remembered, with what is thought of a place some 350 bytes each: of many nodes for fewer kinds. */
    private static final int ANSWERS = Remembered.most(1 << 19, 350);

    private static final String NOBODY = "";

    static final Offer UNKNOWN = new Offer.Refuses(NodeAccount.UNKNOWN.reason(), true);
    private static final Liking UNSEEN = new Liking(Market.STILL, Double.POSITIVE_INFINITY, 0, 0, 0);
    private static final Answer NOBODYS = new Answer(0, UNKNOWN);

    /** What a node said when it had changed so many times. */
    private static class Answer {
        final long changes;
        final Offer offer;

        Answer(long changes, Offer offer) {
            this.changes = changes;
            this.offer = offer;
        }

        boolean holds(NodeAccount account, Judging<?> judging) {
            return changes == account.changes();
        }
    }

    /** Of a node that fits, and what the judge last thought of it: in one place, for thousands are read for each pod. */
    private static final class Judgement extends Answer {
        /** Where it is remembered. */
        final int number;

        private final int edition;
        private final Market market;
        /** Infinite where nobody has asked yet. */
        private final double score;

        private final double priced;
        private final double least;
        private final double most;

        Judgement(int number, long changes, int edition, Judging<?>.Judged offer, Liking last) {
            super(changes, offer);
            this.number = number;
            this.edition = edition;
            this.market = last.market();
            this.score = last.score();
            this.priced = last.priced();
            this.least = last.least();
            this.most = last.most();
        }

        Judgement with(Liking now) {
            return new Judgement(number, changes, edition, judged(), now);
        }

        Judging<?>.Judged judged() {
            return (Judging<?>.Judged) offer;
        }

        @Override
        boolean holds(NodeAccount account, Judging<?> judging) {
            return super.holds(account, judging) && edition == judging.edition();
        }

        boolean isOf(Market now) {
            return market == now && score < Double.POSITIVE_INFINITY;
        }

        /** No less than what the judge would say, known for less. */
        double atMost(Market now) {
            return market == now ? score : now.atMost(score, market, priced, least, most);
        }
    }

    /** What the nodes said to one kind of pod, by their numbers. */
    private static final class Kind {
        private Answer[] answers = {};

        @Nullable
        Answer get(int node) {
            Answer[] now = answers;
            return node < now.length ? now[node] : null;
        }

        void put(int node, Answer answer) {
            Answer[] now = answers;
            if (node >= now.length) {
                now = Arrays.copyOf(now, Math.max(node + 1, now.length * 2));
                answers = now;
            }
            now[node] = answer;
        }
    }

    /** What is remembered of all kinds. Thread-safe. */
    static final class Memory {
        private record Which(PodAsk ask, boolean judged) {}

        /** Of the judge whose thoughts are among the answers. */
        private volatile int edition;
        /** So many nodes: of more nodes fewer kinds are remembered. */
        private volatile int sizedFor = -1;

        private final Cache<Which, Kind> kinds =
                Caffeine.newBuilder().maximumSize(1).build();
        /** Accounts that were asked, by the hashes of their names. */
        private volatile @Nullable NodeAccount[] asked = new @Nullable NodeAccount[2];

        /**
         * The account of a node. Whoever asks about thousands of nodes again and again does so by the same strings: one
         * that is the very same needs no comparison, letter by letter, with another one elsewhere in memory.
         */
        private @Nullable NodeAccount account(String name, Map<String, NodeAccount> nodes) {
            @Nullable NodeAccount[] now = asked;
            // Names are often alike but for a number, and so are their hashes: a golden ratio spreads them.
            int slot = (name.hashCode() * 0x9E3779B9) >>> Integer.numberOfLeadingZeros(now.length - 1);
            NodeAccount there = now[slot];
            if (there == null || !there.isAsked(name)) {
                there = nodes.get(name);
                if (there != null) {
                    there.askedAs(name);
                    now[slot] = there;
                }
            }
            return there;
        }

        /** Room for several times as many as there are, so that few names share one. */
        private void grow(int nodes) {
            if (asked.length < 4 * nodes) {
                asked = new @Nullable NodeAccount[Integer.highestOneBit(8 * nodes)];
            }
        }

        /** CPU and memory make a difference to the judge alone. */
        private Kind of(PodAsk ask, Judging<?> judging, boolean judged, int nodes) {
            int now = judging.edition();
            if (edition != now) {
                edition = now;
                // What was thought by another edition is of no use to anybody, and large.
                kinds.invalidateAll();
            }
            if (sizedFor != nodes) {
                sizedFor = nodes;
                kinds.policy().eviction().orElseThrow().setMaximum(1 + ANSWERS / Math.max(1, nodes));
            }
            return kinds.get(new Which(judged ? ask : ask.requesting(HostLoad.NONE), judged), any -> new Kind());
        }
    }

    private final Map<String, NodeAccount> nodes;
    private final Judging<?> judging;
    private final Memory memory;
    private final Kind kind;
    private final String uid;
    private final PodAsk ask;
    private final Placement policy;
    private final @Nullable NodeAccount own;

    /** {@code own} is the node of the pod's claim; empty for none. */
    Offers(
            Map<String, NodeAccount> nodes,
            Judging<?> judging,
            Memory memory,
            String uid,
            PodAsk ask,
            Placement policy,
            String own) {
        this.nodes = nodes;
        this.judging = judging;
        this.memory = memory;
        memory.grow(nodes.size());
        this.kind = memory.of(ask, judging, policy == Placement.FRAGMENTATION, nodes.size());
        this.uid = uid;
        this.ask = ask;
        this.policy = policy;
        this.own = own.isEmpty() ? null : memory.account(own, nodes);
    }

    /** How much the policy likes a node, higher is better; {@link Scores#NONE} for one that the pod doesn't fit on. */
    public double liking(String node) {
        return liking(node, answer(node));
    }

    private double liking(String node, Answer answer) {
        if (answer instanceof Judgement judgement) {
            return judged(node, judgement);
        }
        if (answer.offer instanceof Offer.Fits fits) {
            return policy == Placement.SPREAD ? -fits.fullness() : fits.fullness();
        }
        return Scores.NONE;
    }

    /*
     * Most nodes are not among the best, and a judge can say so of those that it knew a while ago, without looking closer.
     * The ones that may be the best are looked at first: what they turn out to be turns the others away.
     */
    /**
     * The best liked of those that the pod fits on, best first; of equally liked ones the first by name.
     *
     * @param most 0 or more
     * @param refused is told of the others
     */
    public List<String> best(List<String> names, int most, BiConsumer<String, Offer.Refuses> refused) {
        int kept = Math.max(1, Math.min(most, names.size()));
        var likely = new Best(kept);
        boolean judged = policy == Placement.FRAGMENTATION;
        var judgements = new @Nullable Judgement[judged ? names.size() : 0];
        var atMost = new double[judgements.length];
        Market market = judging.market();
        for (int i = 0; i < names.size(); i++) {
            String node = names.get(i);
            Answer answer = answer(node);
            if (answer instanceof Judgement judgement) {
                judgements[i] = judgement;
                atMost[i] = judgement.atMost(market);
                likely.add(node, atMost[i]);
            } else if (answer.offer instanceof Offer.Refuses refuses) {
                refused.accept(node, refuses);
            } else {
                likely.add(node, liking(node, answer));
            }
        }
        return judged ? best(names, judgements, atMost, likely.worst(), kept) : likely.sorted();
    }

    /** {@code bar}: whoever may be liked so much is looked at first. */
    private List<String> best(
            List<String> names, @Nullable Judgement[] judgements, double[] atMost, double bar, int kept) {
        var best = new Best(kept);
        for (boolean first : new boolean[] {true, false}) {
            for (int i = 0; i < judgements.length; i++) {
                Judgement judgement = judgements[i];
                if (judgement != null && first == (atMost[i] >= bar) && best.takes(names.get(i), atMost[i])) {
                    best.add(names.get(i), judged(names.get(i), judgement));
                }
            }
        }
        return best.sorted();
    }

    private double judged(String node, Judgement last) {
        if (last.isOf(judging.market())) {
            return last.score;
        }
        Optional<Liking> liking = last.judged().look();
        if (liking.isEmpty()) {
            // Somebody else's question has changed what the judge thinks.
            return liking(node);
        }
        if (last.number >= 0) {
            kind.put(last.number, last.with(liking.get()));
        }
        return liking.get().score();
    }

    /** What a liking is made of. */
    public List<Term> terms(Offer.Fits offer) {
        return offer instanceof Judging<?>.Judged judged
                ? judged.terms()
                : List.of(new Term("fullness", offer.fullness() * Room.WHOLE));
    }

    /** What this node says now, the pod's claim there set aside; always what {@link Ledger#ask} would answer. */
    public Offer of(String node) {
        return answer(node).offer;
    }

    private Answer answer(String node) {
        NodeAccount account = memory.account(node, nodes);
        if (account == null) {
            return NOBODYS;
        }
        if (account == own) {
            return answer(account, uid, -1);
        }
        Answer last = kind.get(account.number);
        if (last == null || !last.holds(account, judging)) {
            // Nobody's claim is set aside, not even one that the pod has got since: this is for all of its kind.
            last = answer(account, NOBODY, account.number);
            kind.put(account.number, last);
        }
        return last;
    }

    /** {@code number}: where it will be remembered, -1 for nowhere. */
    private Answer answer(NodeAccount account, String pod, int number) {
        if (policy != Placement.FRAGMENTATION) {
            synchronized (account) {
                return new Answer(account.changes(), account.offer(pod, ask, Set.of()));
            }
        }
        long changes;
        Offer offer;
        Optional<Ways> ways;
        synchronized (account) {
            changes = account.changes();
            offer = account.offer(pod, ask, Set.of());
            ways = offer instanceof Offer.Fits ? account.ways(pod, ask) : Optional.empty();
        }
        // Judged without the node's lock: others may want it meanwhile.
        if (offer instanceof Offer.Fits fits && ways.isPresent()) {
            Judging<?>.Judged judged = judging.fits(fits.fullness(), ways.get());
            return new Judgement(number, changes, judged.edition, judged, UNSEEN);
        }
        return new Answer(changes, offer);
    }
}
