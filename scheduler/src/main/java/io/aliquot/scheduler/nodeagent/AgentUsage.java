package io.aliquot.scheduler.nodeagent;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.GpuUuids;
import io.aliquot.api.pods.Held;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.usage.NodeAllocation;
import io.aliquot.api.usage.NodeAllocation.Amount;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageHistory;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.scheduler.ledger.ContainerShare;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.QuotaAmount;
import io.aliquot.scheduler.nodeagent.AgentException.Outcome;
import io.aliquot.scheduler.placement.GpuInfo;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/*
 * Cost. Each replica asks each agent every 9 s: 556 requests a second for 5,000 nodes. A node's turn within the 9 s
 * depends on its name, so the requests are spread evenly and a restart makes no burst. At most 1,700 are under way: as
 * many as 5,000 nodes cause of which none answers. An agent whose node's limits have changed is asked within a second,
 * so that it is told them: at most once a second, and as often as pods start, end or change on its node.
 *
 * Silence. While a node's kubelet is down with its agent, the agent's pod stays Ready in the API server until the node
 * controller marks the node, after 40 s. So an agent that has answered, and to which no connection is possible 15 s
 * later, counts as not ready. 9 s, 3 s for a request on a connection that died with the node, and a second try of 2 s fit
 * into that. Nothing else counts as silence: a program that holds all of the agent's connections must not take the node
 * out of scheduling. An agent that has never answered this replica counts as its pod says: right after the installation
 * the scheduler has no certificate yet.
 *
 * Trust. What counts is the certificate that the node's inventory names when the agent is asked. An agent that has just
 * started may answer before this replica has seen its new one: that answer is lost, and the next request follows after
 * 9 s.
 */
/**
 * What the containers of each node with a ready agent use, fetched from the agents every {@link #PERIOD}. Thread-safe.
 */
public final class AgentUsage {
    static final Duration PERIOD = Duration.ofSeconds(9);
    /** An agent that cannot be connected to for this long is not ready. */
    static final Duration SILENCE = Duration.ofSeconds(15);

    /** Between two requests to an agent beside its turns: those that tell new limits, or that a reader waits for. */
    private static final Duration NEWS_AFTER = Duration.ofSeconds(1);

    private static final int NO_LIMITS = List.of().hashCode();
    private static final Duration SECOND_TRY_AFTER = Duration.ofSeconds(1);
    private static final Set<Outcome> NO_ANSWER =
            EnumSet.of(Outcome.NO_AGENT, Outcome.TIMEOUT, Outcome.UNREACHABLE, Outcome.BROKEN);
    /** Older reports do not count. */
    static final Duration VALID = Duration.ofSeconds(60);

    static final int MOST_UNDER_WAY = 1700;

    /** Between two lines in the log about the same error of the same node, or about the same unreadable answer. */
    private static final Duration REPEAT_AFTER = Duration.ofHours(1);

    private static final long GOLDEN_RATIO = 0x9E3779B97F4A7C15L;

    private static final Logger LOG = LoggerFactory.getLogger(AgentUsage.class);

    private final AgentClient client;
    private final Function<String, Optional<String>> certificates;
    private final Readiness readiness;
    private final Ledger ledger;
    private final LongSupplier nanoTime;
    private final Map<String, Agent> byNode = new ConcurrentHashMap<>();
    private final AtomicInteger underWay = new AtomicInteger();
    private final Map<Outcome, Counter> fetches = new EnumMap<>(Outcome.class);
    private final Cache<String, Boolean> logged;

    /** Learns whether the node's agent is ready and answers. */
    interface Readiness {
        void set(String node, boolean ready);
    }

    /** A node's agent at one address, when it is asked next, and its latest report. */
    private static final class Agent {
        /** Empty while the agent is not ready. */
        private final String address;

        /** Whether its pod is ready. Guarded, with the next five, by the AgentUsage: no annotation can name it. */
        private boolean ready;

        private boolean silent;
        private long due;
        private long askedAt;

        /** Until when it is about to accept this replica. */
        private long expectedUntil;

        /** The latest request. Completes without an exception. */
        private CompletableFuture<?> answer = CompletableFuture.completedFuture(null);

        /** The hash code of the limits that the agent has, and the ledger's revision of the node for which they are right. */
        private volatile int told = NO_LIMITS;

        private volatile long toldRevision = -1;

        /** When it answered last, null: never; and what became of the latest request. */
        private volatile @Nullable Long answeredAt;

        private volatile Outcome outcome = Outcome.NO_AGENT;
        private volatile @Nullable Received received;

        Agent(String address, long due, long expectedUntil, @Nullable Received received) {
            this.address = address;
            this.due = due;
            this.expectedUntil = expectedUntil;
            this.received = received;
        }
    }

    private record Received(UsageReport report, long at) {}

    /**
     * Knows no agent at first.
     *
     * @param certificates of a node's agent, by the digest that the node names now
     * @param ledger learns what agents report
     */
    AgentUsage(
            AgentClient client,
            Function<String, Optional<String>> certificates,
            Readiness readiness,
            Ledger ledger,
            MeterRegistry metrics,
            LongSupplier nanoTime) {
        this.client = client;
        this.certificates = certificates;
        this.readiness = readiness;
        this.ledger = ledger;
        this.nanoTime = nanoTime;
        this.logged = Caffeine.newBuilder()
                .maximumSize(10_000)
                .expireAfterWrite(REPEAT_AFTER)
                .ticker(nanoTime::getAsLong)
                .build();
        for (Outcome outcome : Outcome.values()) {
            fetches.put(
                    outcome,
                    Counter.builder("aliquot.agent.fetches")
                            .description("Requests for the usage that node agents report")
                            .tag("outcome", outcome.tag())
                            .register(metrics));
        }
    }

    /**
     * The node has an agent.
     *
     * @param ready whether its pod is ready
     * @param address of its pod; empty while it is not ready
     */
    public synchronized void putAgent(String node, boolean ready, String address) {
        Agent agent = byNode.compute(node, (name, known) -> {
            if (known == null) {
                long now = nanoTime.getAsLong();
                return new Agent(address, now + turn(name), now, null);
            }
            return known.address.equals(address)
                    ? known
                    : new Agent(address, known.due, known.expectedUntil, known.received);
        });
        agent.ready = ready;
        readiness.set(node, ready && !agent.silent);
    }

    /** The node's agent learns now that it is to accept this replica, which asks it until it does, for some seconds. */
    synchronized void expectAnswer(String node) {
        Agent agent = byNode.get(node);
        if (agent != null) {
            long now = nanoTime.getAsLong();
            agent.due = Math.min(agent.due, now + SECOND_TRY_AFTER.toNanos());
            agent.expectedUntil = now + PERIOD.toNanos();
        }
    }

    /**
     * When in a period the node is asked, in nanoseconds: by the mixed hash code of its name, because the hash codes of
     * consecutive names are consecutive.
     */
    private static long turn(String node) {
        long mixed = (node.hashCode() * GOLDEN_RATIO) >>> Integer.SIZE; // Knuth, multiplicative hashing
        return TimeUnit.MILLISECONDS.toNanos((mixed * PERIOD.toMillis()) >>> Integer.SIZE);
    }

    /** Requests that wait for their answers. */
    int underWay() {
        return underWay.get();
    }

    /** The node has no agent any more. */
    public synchronized void removeAgent(String node) {
        byNode.remove(node);
    }

    /** What the node's agent reported last; empty if that is older than {@link #VALID}. */
    public Optional<UsageReport> usage(String node) {
        return Optional.ofNullable(byNode.get(node)).flatMap(this::current);
    }

    /** The reports of all nodes that have one. */
    public List<UsageReport> all() {
        return byNode.values().stream()
                .map(this::current)
                .flatMap(Optional::stream)
                .toList();
    }

    private Optional<UsageReport> current(Agent agent) {
        return Optional.ofNullable(agent.received)
                .filter(received -> nanoTime.getAsLong() - received.at() <= VALID.toNanos())
                .map(Received::report);
    }

    /**
     * Asks a node's agent for the history of a GPU; returns within {@link AgentClient#TIMEOUT}.
     *
     * @throws AgentException with a sentence for users if there is no answer
     */
    public UsageHistory history(String node, String gpu) throws AgentException {
        Agent agent = byNode.get(node);
        if (agent == null || agent.address.isEmpty()) {
            throw new AgentException(Outcome.NO_AGENT, "node " + node + " has no ready node agent");
        }
        try {
            return ask(node, agent.address, UsageHistory.PATH, "gpu=" + GpuUuids.check(gpu), "")
                    .thenApply(UsageHistory::parse)
                    .get();
        } catch (FormatException e) {
            throw new AgentException(Outcome.REFUSED, String.valueOf(e.getMessage()));
        } catch (ExecutionException e) {
            AgentException cause = cause(e);
            throw new AgentException(cause.outcome(), "the agent of node " + node + ": " + cause.getMessage());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new AgentException(Outcome.TIMEOUT, "the scheduler ends");
        }
    }

    /** Sends the requests that are due and does not wait for answers; to be called several times a second. */
    public synchronized void fetchDue() {
        long now = nanoTime.getAsLong();
        byNode.forEach((node, agent) -> {
            noteSilence(node, agent, now);
            if (!agent.address.isEmpty()
                    && agent.answer.isDone()
                    && (now - agent.due >= 0 || hasNews(node, agent, now))) {
                start(node, agent, now);
            }
        });
    }

    /**
     * Asks the agents of these nodes for figures, but for those that were asked in the last second, and waits for the answers
     * for at most a second. For readers of a few objects, whose figures are then up to date.
     */
    public void refresh(Collection<String> nodes) {
        var answers = new ArrayList<CompletableFuture<?>>();
        synchronized (this) {
            long now = nanoTime.getAsLong();
            for (String node : nodes) {
                Agent agent = byNode.get(node);
                if (agent != null && agent.outcome == Outcome.DONE) {
                    if (agent.answer.isDone() && now - agent.askedAt >= NEWS_AFTER.toNanos()) {
                        start(node, agent, now);
                    }
                    answers.add(agent.answer);
                }
            }
        }
        CompletableFuture.allOf(answers.toArray(CompletableFuture[]::new))
                .completeOnTimeout(null, NEWS_AFTER.toMillis(), TimeUnit.MILLISECONDS)
                .join();
    }

    /** Sends a request. If too many are under way, the agent stays due. */
    @GuardedBy("this")
    private void start(String node, Agent agent, long now) {
        if (underWay.incrementAndGet() > MOST_UNDER_WAY) {
            underWay.decrementAndGet();
            return;
        }
        agent.askedAt = now;
        // The turn stays the same, also after a delay, or before it.
        long missed = Math.floorDiv(now - agent.due, PERIOD.toNanos());
        agent.due += (missed + 1) * PERIOD.toNanos();
        agent.answer = fetch(node, agent);
    }

    /** Whether the agent, which answers, has not been told the node's limits as they are now. */
    @GuardedBy("this")
    private boolean hasNews(String node, Agent agent, long now) {
        long revision = ledger.revision(node);
        if (agent.outcome != Outcome.DONE
                || revision == agent.toldRevision
                || now - agent.askedAt < NEWS_AFTER.toNanos()) {
            return false;
        }
        boolean differs = hashOfLimits(ledger.view(node).map(AgentUsage::allocation)) != agent.told;
        if (!differs) {
            agent.toldRevision = revision;
        }
        return differs;
    }

    private static int hashOfLimits(Optional<NodeAllocation> allocation) {
        return allocation.map(NodeAllocation::limits).orElse(List.of()).hashCode();
    }

    @GuardedBy("this")
    private void noteSilence(String node, Agent agent, long now) {
        Long answeredAt = agent.answeredAt;
        boolean late = answeredAt != null && now - answeredAt >= SILENCE.toNanos();
        boolean silent = late && agent.outcome == Outcome.UNREACHABLE;
        if (silent != agent.silent) {
            agent.silent = silent;
            if (silent) {
                LOG.warn("the agent of node {} is unreachable: the node takes no pods until it answers", node);
            } else {
                LOG.info("the agent of node {} can be reached again", node);
            }
            readiness.set(node, agent.ready && !silent);
        } else if (agent.answer.isDone()
                && (now - agent.expectedUntil < 0
                        ? agent.outcome != Outcome.DONE
                        : answeredAt != null && !late && NO_ANSWER.contains(agent.outcome))) {
            agent.due = Math.min(agent.due, now + SECOND_TRY_AFTER.toNanos());
        }
    }

    private CompletableFuture<?> fetch(String node, Agent agent) {
        String query = ledger.awaitsPods(node) ? UsageReport.WITH_PODS : "";
        // Names of pods are for an agent that has shown its certificate.
        Optional<NodeAllocation> allocation =
                agent.outcome == Outcome.DONE ? ledger.view(node).map(AgentUsage::allocation) : Optional.empty();
        String body = allocation.map(NodeAllocation::print).orElse("");
        long askedAt = nanoTime.getAsLong();
        CompletableFuture<UsageReport> answer =
                ask(node, agent.address, UsageReport.PATH, query, body).thenApply(text -> report(node, text));
        CompletableFuture<Outcome> end = answer.handle((report, failure) -> {
            Outcome outcome = Outcome.DONE;
            if (failure == null) {
                agent.received = new Received(report, nanoTime.getAsLong());
                agent.told = hashOfLimits(allocation);
                ledger.observe(report, askedAt)
                        .forEach(pod -> LOG.info("no longer on node {}, its vGPUs are free: {}", node, pod));
                if (!query.isEmpty() && report.pods().isEmpty()) {
                    logWithoutPods(node);
                }
            } else {
                AgentException cause = cause(failure);
                outcome = cause.outcome();
                log(node, cause);
            }
            if (!NO_ANSWER.contains(outcome)) {
                agent.answeredAt = nanoTime.getAsLong();
            }
            agent.outcome = outcome;
            Objects.requireNonNull(fetches.get(outcome)).increment();
            return outcome;
        });
        // Later than the end: a node whose request is no longer under way can be asked again.
        var unused = end.whenComplete((outcome, failure) -> underWay.decrementAndGet());
        return end;
    }

    /** What the node's agent shows as metrics: the same in each replica, since only pods that the watch reported count. */
    private static NodeAllocation allocation(NodeView view) {
        List<NodeAllocation.OfGpu> gpus = view.gpus().stream()
                .limit(UsageReport.MOST_GPUS)
                .map(AgentUsage::allocation)
                .toList();
        List<NodeAllocation.Limit> limits = new ArrayList<>();
        List<NodeAllocation.OfPod> pods = new ArrayList<>();
        for (Holding holding : view.holdings()) {
            if (holding.state() != Holding.State.HELD || holding.shares().isEmpty()) {
                continue;
            }
            if (pods.size() < UsageReport.MOST_CONTAINERS) {
                QuotaAmount held = QuotaAmount.held(holding.shares());
                pods.add(new NodeAllocation.OfPod(
                        holding.pod().namespace(), holding.pod().name(), held.memoryMiB(), (int) held.cores()));
            }
            for (ContainerShare share : holding.shares()) {
                if (share.ended()) {
                    continue;
                }
                var container = new PodContainer(
                        holding.pod().namespace(),
                        holding.pod().name(),
                        holding.pod().uid(),
                        share.container());
                for (Vgpu vgpu : share.vgpus().list()) {
                    if (limits.size() < UsageReport.MOST_CONTAINERS) {
                        limits.add(new NodeAllocation.Limit(
                                container,
                                vgpu.uuid(),
                                vgpu.memoryMiB(),
                                vgpu.cores(),
                                vgpu.policy(),
                                vgpu.priority(),
                                Held.of(vgpu.exclusive())));
                    }
                }
            }
        }
        return new NodeAllocation(gpus, limits, pods);
    }

    private static NodeAllocation.OfGpu allocation(GpuInfo gpu) {
        return new NodeAllocation.OfGpu(
                gpu.gpu().uuid(),
                gpu.gpu().model(),
                new Amount(
                        gpu.capacity().memoryMiB(),
                        gpu.capacity().cores(),
                        gpu.capacity().slots()),
                new Amount(
                        gpu.allocated().memoryMiB(),
                        gpu.allocated().cores(),
                        gpu.allocated().slots()),
                gpu.capacity().schedulable());
    }

    private CompletableFuture<String> ask(String node, String address, String path, String query, String body) {
        return certificates
                .apply(node)
                .map(certificate -> client.get(address, certificate, path, query, body))
                .orElseGet(() -> CompletableFuture.failedFuture(
                        new AgentException(Outcome.NO_AGENT, "its node's inventory names no certificate")));
    }

    private static UsageReport report(String node, String text) {
        UsageReport report = UsageReport.parse(text);
        if (!report.node().equals(node)) {
            throw new FormatException("expected the usage of node " + node + ", found that of " + report.node());
        }
        return report;
    }

    private static AgentException cause(Throwable failure) {
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            if (cause instanceof AgentException known) {
                return known;
            }
            if (cause instanceof FormatException invalid) {
                return new AgentException(
                        Outcome.INVALID,
                        "its answer is not readable, perhaps it is of another version: " + invalid.getMessage());
            }
        }
        return new AgentException(Outcome.INVALID, "its answer cannot be used: " + failure);
    }

    private void logWithoutPods(String node) {
        if (logged.asMap().putIfAbsent(node, true) == null) {
            LOG.warn("the agent of node {} cannot tell which pods the node has: shares of deleted pods stay", node);
        }
    }

    /** Agents of another version usually are all of the same one: one line is enough. */
    private void log(String node, AgentException failure) {
        String once = failure.outcome() == Outcome.INVALID ? "" : node + " ";
        if (logged.asMap().putIfAbsent(once + failure.getMessage(), true) == null) {
            LOG.warn("no usage from the agent of node {}: {}", node, failure.getMessage());
        }
    }
}
