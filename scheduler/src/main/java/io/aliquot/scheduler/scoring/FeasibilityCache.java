package io.aliquot.scheduler.scoring;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.api.Placement;
import io.aliquot.scheduler.ledger.ChangeCounter;
import io.aliquot.scheduler.ledger.Feasibility;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeAccountView;
import io.aliquot.scheduler.placement.CandidatePlacements;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.BiConsumer;
import java.util.function.ObjIntConsumer;

/*
 * Pods come in kinds: those of one template want the same, and a node says the same to all of them until something
 * changes there. Few nodes change between one pod and the next, however many nodes and running pods there are. So changes
 * are counted, and each kind remembers what every node last said to it and at which count: a node that has not changed
 * costs its number and a comparison, no look at its account, no garbage; one that has, its lock and one run of the chooser
 * over its GPUs. For 5,000 nodes that is 0.1 ms instead of some 3.
 *
 * What is remembered is true of the instant in which the count is read: a node counts before it lets go of its lock, and
 * an answer is worked out, and its count read, under that lock. No two nodes are ever at the same count, so that one that
 * is given the number of another that is gone is not taken for it: numbers are looked up with the kind's lock held, and are
 * not given again before nobody can find them by the old name.
 *
 * Evaluating a node is far dearer than asking it, and at times all nodes have to be evaluated: when the judge has a new
 * edition, and for the first pod of a kind. One request evaluates no more than EVALUATIONS: first the nodes that were liked
 * best before, or the fullest where nothing is known yet. The nodes that are left come after those that were evaluated, and the
 * next requests of the kind go on with them.
 *
 * A pod's own claim is set aside where it is asked about, so that what its kind remembers of that one node is not true
 * of it: that node is asked itself.
 *
 * Locks: a kind's is taken first, an account's or the directory's then.
 */
/** What nodes would say to one pod. For one request: it knows where the pod's claim was when it was made. */
public final class FeasibilityCache {
    /** So many answers are remembered, with what is thought of a place some 390 bytes each: of many nodes for fewer kinds. */
    private static final int ANSWERS = CacheSizes.limit(1 << 19, 390);

    /**
     * What one request may spend on evaluating nodes: one for each node, and one for each of its places that the judge does
     * not remember, some 20 to 50 microseconds on a node of 8 GPUs.
     */
    static final int EVALUATIONS = 512;
    /** Of these, what is spent in the nodes' order before they are sorted: few nodes change between two pods. */
    private static final int UNSORTED = 64;
    /** Less than any liking of a node that was evaluated. */
    private static final double NOT_EVALUATED = -1e12;

    private static final String NOBODY = "";

    private static final Answer NOBODYS = new Answer(NodeIndex.UNKNOWN, 0, Feasibility.UNKNOWN_NODE);

    /** What a node said when it had changed so many times. */
    private record Answer(int number, long changes, Feasibility offer) {}

    /** What is remembered of all kinds. Thread-safe. */
    static final class Memory {
        private record Which(PodGpuRequest ask, boolean judged) {}

        final ChangeCounter changes;
        final NodeIndex directory;

        /** Of the judge whose thoughts are among the answers. */
        private volatile int edition;
        /** So many nodes: of more nodes fewer kinds are remembered. */
        private volatile int sizedFor = -1;

        private final Cache<Which, CachedResults> kinds =
                Caffeine.newBuilder().maximumSize(1).executor(Runnable::run).build();

        Memory(ChangeCounter changes, NodeIndex directory) {
            this.changes = changes;
            this.directory = directory;
        }

        /** CPU and memory make a difference to the judge alone. */
        private CachedResults of(PodGpuRequest ask, ScoringCache<?> judging, boolean judged, int nodes) {
            int now = judging.modelVersion();
            if (edition != now) {
                edition = now;
                // What another edition thought of places is large; kinds that no pod comes of any more would keep it.
                kinds.asMap().forEach((kind, known) -> {
                    if (kind.judged()) {
                        synchronized (known) {
                            known.renew(now);
                        }
                    }
                });
            }
            if (sizedFor != nodes) {
                sizedFor = nodes;
                kinds.policy().eviction().orElseThrow().setMaximum(1 + ANSWERS / Math.max(1, nodes));
            }
            return kinds.get(new Which(judged ? ask : ask.withoutHostRequests(), judged), any -> new CachedResults());
        }
    }

    private final Ledger ledger;
    private final ScoringCache<?> judging;
    private final Memory memory;
    private final CachedResults answers;
    private final String uid;
    private final PodGpuRequest ask;
    private final Placement policy;
    private final boolean judged;
    /** On the node that was judged last; empty where none is. */
    private final Optional<CandidatePlacements> ways;
    /** The node of the pod's claim; empty for none. */
    private final String own;
    /** What this request may still spend on evaluating nodes. Guarded by the answers. */
    private int left = EVALUATIONS;

    /** {@code own} is the node of the pod's claim; empty for none. */
    FeasibilityCache(
            Ledger ledger,
            ScoringCache<?> judging,
            Memory memory,
            String uid,
            PodGpuRequest ask,
            Placement policy,
            String own) {
        this.ledger = ledger;
        this.judging = judging;
        this.memory = memory;
        this.judged = policy == Placement.FRAGMENTATION;
        this.answers = memory.of(ask, judging, judged, ledger.nodeCount());
        this.uid = uid;
        this.ask = ask;
        this.policy = policy;
        this.ways = judged ? Optional.of(new CandidatePlacements(ask, judging.models)) : Optional.empty();
        this.own = own;
    }

    /** What this node says now, the pod's claim there set aside; always what {@link Ledger#feasibility} would answer. */
    public Feasibility of(String node) {
        if (node.equals(own)) {
            return ask(node, uid, judged).offer;
        }
        synchronized (answers) {
            int number = evaluated(node);
            return number < 0 ? Feasibility.UNKNOWN_NODE : answers.offer(number);
        }
    }

    /** How much the policy likes a node, higher is better; {@link FullnessScores#NONE} for one that the pod doesn't fit on. */
    public double liking(String node) {
        if (node.equals(own)) {
            return liking(node, uid, ask(node, uid, judged).offer);
        }
        synchronized (answers) {
            int number = evaluated(node);
            return number < 0 ? FullnessScores.NONE : orAsked(byFullness(answers.exactly(number)), node, NOBODY);
        }
    }

    /*
     * Most nodes are not among the best, and a judge can say so of those that it knew a while ago, without looking closer.
     * The ones that may be the best are looked at first: what they turn out to be turns the others away.
     */
    /**
     * The best liked of those that the pod fits on, best first; of equally liked ones the first by name. Those that this
     * request can't evaluate any more come last.
     *
     * @param most 0 or more
     * @param refused is told of the others
     */
    public List<String> best(List<String> names, int most, BiConsumer<String, Feasibility.Refuses> refused) {
        int kept = Math.max(1, Math.min(most, names.size()));
        synchronized (answers) {
            renew();
            int[] numbers = answers.numbers(names.size());
            int[] ranks = answers.ranks(names.size());
            double[] atMost = answers.likings(names.size());
            int refusing = 0;
            TopK likely = answers.likely;
            likely.begin(kept);
            double bar = likely.worst();
            memory.directory.numbers(names, numbers, ranks);
            int itself = memory.directory.number(own);
            int unjudged = 0;
            for (int i = 0; i < names.size(); i++) {
                int number = numbers[i] == itself ? NodeIndex.UNKNOWN : remembered(names.get(i), numbers[i]);
                numbers[i] = number;
                unjudged += number >= 0 && answers.unjudged(number) ? 1 : 0;
            }
            if (unjudged > 0) {
                evaluate(names, numbers, ranks, unjudged);
            }
            PriceSnapshot market = judging.market();
            for (int i = 0; i < names.size(); i++) {
                String node = names.get(i);
                int number = numbers[i];
                Feasibility offer = number < 0 ? ask(node, uid, judged).offer : answers.offer(number);
                atMost[i] = number < 0 ? liking(node, uid, offer) : atMost(number, market);
                if (atMost[i] > FullnessScores.NONE) {
                    // a judge looks closer below, and wants no more than the bar: equals don't move it
                    if (judged ? atMost[i] > bar : atMost[i] >= bar) {
                        likely.add(i, ranks[i], atMost[i]);
                        bar = likely.worst();
                    }
                } else if (offer instanceof Feasibility.Refuses refuses) {
                    refused.accept(node, refuses);
                    refusing++;
                }
            }
            answers.refusing = refusing;
            return judged ? best(names, numbers, ranks, atMost, bar, kept) : likely.sorted(names);
        }
    }

    private double atMost(int number, PriceSnapshot market) {
        return answers.unjudged(number) ? notEvaluated(number) : byFullness(answers.atMost(number, market));
    }

    /** Evaluates nodes as long as this request may: the ones that were liked best first, then the fullest. */
    private void evaluate(List<String> names, int[] numbers, int[] ranks, int unjudged) {
        var waiting = new ArrayList<Integer>(unjudged);
        for (int i = 0; i < names.size(); i++) {
            if (numbers[i] >= 0 && answers.unjudged(numbers[i])) {
                waiting.add(i);
            }
        }
        waiting.sort(Comparator.<Integer>comparingDouble(i -> -answers.hint(numbers[i]))
                .thenComparingDouble(i -> -answers.fullness(numbers[i]))
                .thenComparingInt(i -> ranks[i]));
        for (int i = 0; i < waiting.size() && left > 0; i++) {
            int at = waiting.get(i);
            numbers[at] = evaluated(names.get(at));
        }
    }

    /** How much a node is liked that this request can't evaluate any more. */
    private double notEvaluated(int number) {
        double hint = answers.hint(number);
        return NOT_EVALUATED + (Double.isInfinite(hint) ? answers.fullness(number) : hint);
    }

    /** {@code bar}: whoever may be liked so much is looked at first. */
    private List<String> best(List<String> names, int[] numbers, int[] ranks, double[] atMost, double bar, int kept) {
        TopK best = answers.best;
        best.begin(kept);
        for (boolean likely : new boolean[] {true, false}) {
            for (int i = 0; i < names.size(); i++) {
                if (atMost[i] >= bar == likely && atMost[i] > FullnessScores.NONE && best.takes(ranks[i], atMost[i])) {
                    double liking = numbers[i] < 0 ? atMost[i] : liking(names.get(i), numbers[i]);
                    if (liking > FullnessScores.NONE) {
                        best.add(i, ranks[i], liking);
                    }
                }
            }
        }
        return best.sorted(names);
    }

    /** About so many will refuse: as many as refused the last pod of this kind. */
    public int refusing() {
        synchronized (answers) {
            return answers.refusing;
        }
    }

    /**
     * Scores nodes as {@link FullnessScores} has it. The node of the pod's claim wins, whatever is liked now: the pod was told so,
     * and the judge sees the room that it keeps as taken.
     *
     * @param told of each node's score, in their order
     */
    public void score(List<String> names, ObjIntConsumer<String> told) {
        synchronized (answers) {
            double[] likings = answers.likings(names.size());
            var scores = new FullnessScores(ask.preferences());
            int winner = -1;
            for (int i = 0; i < names.size(); i++) {
                likings[i] = likingWithin(names.get(i));
                if (likings[i] > NOT_EVALUATED / 2) {
                    scores.add(likings[i]);
                }
                if (likings[i] != FullnessScores.NONE
                        && (winner < 0 || wins(names.get(i), likings[i], names.get(winner), likings[winner]))) {
                    winner = i;
                }
            }
            for (int i = 0; i < names.size(); i++) {
                told.accept(
                        names.get(i),
                        scores.of(likings[i] > NOT_EVALUATED / 2 ? likings[i] : FullnessScores.NONE, i == winner));
            }
        }
    }

    /** As {@link #liking(String)}, as long as this request may evaluate nodes. */
    private double likingWithin(String node) {
        if (node.equals(own)) {
            return liking(node);
        }
        int number = left > 0 ? evaluated(node) : remembered(node);
        return number < 0 ? FullnessScores.NONE : liking(node, number);
    }

    private boolean wins(String node, double liking, String other, double otherLiking) {
        return node.equals(own)
                || (!other.equals(own)
                        && (liking > otherLiking || (liking == otherLiking && node.compareTo(other) < 0)));
    }

    private void renew() {
        answers.renew(judged ? judging.modelVersion() : 0);
    }

    private double byFullness(double fullness) {
        return policy == Placement.SPREAD && fullness != FullnessScores.NONE ? -fullness : fullness;
    }

    /** Of a node whose answer is remembered. */
    private double liking(String node, int number) {
        if (answers.unjudged(number)) {
            return notEvaluated(number);
        }
        double liking = byFullness(answers.exactly(number));
        if (!Double.isNaN(liking)) {
            return liking;
        }
        // Another request has brought a new edition meanwhile.
        if (left <= 0) {
            return NOT_EVALUATED;
        }
        Feasibility offer = ask(node, NOBODY, true).offer;
        return liking(node, NOBODY, offer);
    }

    /** Of a node that said so. */
    private double liking(String node, String pod, Feasibility offer) {
        if (offer instanceof ScoringCache<?>.Evaluated judged) {
            return orAsked(judged.score(), node, pod);
        }
        return offer instanceof Feasibility.Fits fits ? byFullness(fits.fullness()) : FullnessScores.NONE;
    }

    /** What the node says now counts where another request has changed what the judge thinks. */
    private double orAsked(double score, String node, String pod) {
        return Double.isNaN(score) ? liking(node, pod, ask(node, pod, judged).offer) : score;
    }

    /** What a liking is made of. */
    public List<ScoreTerm> terms(Feasibility.Fits offer) {
        return offer instanceof ScoringCache<?>.Evaluated judged
                ? judged.menu.terms()
                : List.of(new ScoreTerm("fullness", offer.fullness() * FreeCapacity.WHOLE));
    }

    /** The number of a node whose answer is remembered, if only from now on; what fits may be unjudged. */
    private int remembered(String node) {
        renew();
        return remembered(node, memory.directory.number(node));
    }

    private int remembered(String node, int number) {
        return number >= 0 && answers.has(number, memory.changes.of(number))
                ? number
                : put(node, judged && left > EVALUATIONS - UNSORTED);
    }

    /** The number of a node that is evaluated where it fits, if only from now on. */
    private int evaluated(String node) {
        renew();
        int number = memory.directory.number(node);
        return number >= 0 && answers.has(number, memory.changes.of(number)) && !answers.unjudged(number)
                ? number
                : put(node, judged);
    }

    private int put(String node, boolean evaluate) {
        // No claim is set aside, not even one that the pod has got since: this is for all of its kind.
        Answer answer = ask(node, NOBODY, evaluate);
        if (answer.number >= 0) {
            answers.put(answer.number, answer.changes, answer.offer, judged);
        }
        return answer.number;
    }

    /** Asks the node itself, this pod's claim set aside. */
    private Answer ask(String node, String pod, boolean evaluate) {
        Optional<NodeAccountView> found = ledger.account(node);
        if (found.isEmpty()) {
            return NOBODYS;
        }
        NodeAccountView account = found.get();
        long changes;
        Feasibility offer;
        synchronized (account) {
            changes = account.changes();
            offer = account.feasibility(pod, ask, Set.of(), evaluate ? ways : Optional.empty());
        }
        if (evaluate && ways.isPresent() && offer instanceof Feasibility.Fits fits) {
            // Judged without the node's lock: others may want it meanwhile.
            ScoringCache<?>.Evaluated evaluated = judging.fits(fits.fullness(), ways.get());
            left -= 1 + evaluated.evaluations;
            return new Answer(account.number(), changes, evaluated);
        }
        return new Answer(account.number(), changes, offer);
    }
}
