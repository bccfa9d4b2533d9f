package io.aliquot.scheduler.nodeagent;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.api.names.FormatException;
import io.aliquot.api.names.GpuUuids;
import io.aliquot.api.usage.UsageHistory;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.scheduler.nodeagent.AgentException.Outcome;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import java.time.Duration;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/*
 * Cost. Each replica asks each agent every 15 s: 333 requests a second for 5,000 nodes. A node's turn within the 15 s
 * depends on its name, so the requests are spread evenly and a restart makes no burst. At most 1,024 are under way: as
 * many as 5,000 nodes cause of which none answers.
 */
/**
 * What the containers of each node with a ready agent use, fetched from the agents every {@link #PERIOD}. Thread-safe.
 */
public final class AgentUsage {
    static final Duration PERIOD = Duration.ofSeconds(15);
    /** Older reports do not count. */
    static final Duration VALID = Duration.ofSeconds(60);

    static final int MOST_UNDER_WAY = 1024;

    /** Between two lines in the log about the same error of the same node, or about the same unreadable answer. */
    private static final Duration REPEAT_AFTER = Duration.ofHours(1);

    private static final long GOLDEN_RATIO = 0x9E3779B97F4A7C15L;

    private static final Logger LOG = LoggerFactory.getLogger(AgentUsage.class);

    private final AgentClient client;
    private final LongSupplier nanoTime;
    private final Map<String, Agent> byNode = new ConcurrentHashMap<>();
    private final AtomicInteger underWay = new AtomicInteger();
    private final Map<Outcome, Counter> fetches = new EnumMap<>(Outcome.class);
    private final Cache<String, Boolean> logged;

    /** A node's agent: where it is, when it is asked next, and its latest report. */
    private static final class Agent {
        /** Empty while the agent is not ready. */
        private volatile String address = "";

        /** Used by {@link #fetchDue} alone. */
        private long due;

        private volatile boolean asked;
        private volatile @Nullable Received received;
    }

    private record Received(UsageReport report, long at) {}

    AgentUsage(AgentClient client, MeterRegistry metrics, LongSupplier nanoTime) {
        this.client = client;
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
     * @param address of its pod; empty while it is not ready
     */
    public void putAgent(String node, String address) {
        byNode.computeIfAbsent(node, name -> {
                    var agent = new Agent();
                    agent.due = nanoTime.getAsLong() + turn(name);
                    return agent;
                })
                .address = address;
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
    public void removeAgent(String node) {
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
            return client.get(agent.address, UsageHistory.PATH, "gpu=" + GpuUuids.check(gpu))
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
    public void fetchDue() {
        long now = nanoTime.getAsLong();
        byNode.forEach((node, agent) -> {
            if (!agent.address.isEmpty() && !agent.asked && now - agent.due >= 0) {
                if (underWay.incrementAndGet() > MOST_UNDER_WAY) {
                    underWay.decrementAndGet(); // stays due
                } else {
                    agent.asked = true;
                    // The turn stays the same, also after a delay.
                    long missed = (now - agent.due) / PERIOD.toNanos();
                    agent.due += (missed + 1) * PERIOD.toNanos();
                    fetch(node, agent);
                }
            }
        });
    }

    private void fetch(String node, Agent agent) {
        CompletableFuture<UsageReport> answer =
                client.get(agent.address, UsageReport.PATH, "").thenApply(text -> report(node, text));
        var unused = answer.whenComplete((report, failure) -> {
            Outcome outcome = Outcome.DONE;
            if (failure == null) {
                agent.received = new Received(report, nanoTime.getAsLong());
            } else {
                AgentException cause = cause(failure);
                outcome = cause.outcome();
                log(node, cause);
            }
            Counter counter = fetches.get(outcome);
            if (counter != null) {
                counter.increment();
            }
            agent.asked = false;
            underWay.decrementAndGet();
        });
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

    /** Agents of another version usually are all of the same one: one line is enough. */
    private void log(String node, AgentException failure) {
        String once = failure.outcome() == Outcome.INVALID ? "" : node + " ";
        if (logged.asMap().putIfAbsent(once + failure.getMessage(), true) == null) {
            LOG.warn("no usage from the agent of node {}: {}", node, failure.getMessage());
        }
    }
}
