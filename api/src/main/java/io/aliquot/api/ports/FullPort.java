package io.aliquot.api.ports;

import java.net.InetAddress;
import java.time.Duration;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.stream.Collectors;

/*
 * If a full port refused new connections, silent clients could keep an API server out; if it closed the one that has been
 * inactive for the longest time, a client could close all others by opening connections. So clients are told apart by
 * their addresses. A new connection closes one of its own address, unless its address has few: then one of the address
 * that has the most. So an address alone takes nothing from another one once it has an eighth of the port, and a new
 * address always gets in. What has been silent for longer than an honest client goes first, of whichever address it is.
 */
/**
 * Which connection a full port closes for a new one. Connections of API servers are closed for API servers only, if their
 * addresses are known. Immutable.
 */
public final class FullPort {
    /** In which an honest client has sent something, on a busy machine. */
    private static final long SILENCE = Duration.ofSeconds(5).toNanos();

    /** What an address may have of the port at the expense of others is one of so many parts. */
    private static final int PARTS = 8;

    /** A connection of a port. */
    public interface Connection {
        Peer peer();

        /** Whether the client has sent nothing so far, as far as the port knows. */
        default boolean silent() {
            return false;
        }

        /** For how long the client has sent nothing, in nanoseconds. */
        long inactive(long nanoTime);

        /** Whether the client has proved otherwise than by its address that an API server sends its requests. */
        default boolean authenticated() {
            return false;
        }
    }

    private final int most;
    private final ApiServers apiServers;

    /**
     * The rule of a port.
     *
     * @param most the number of connections with which it is full
     */
    public FullPort(int most, ApiServers apiServers) {
        this.most = most;
        this.apiServers = apiServers;
    }

    /** Of a connection from this address. */
    public Peer peer(InetAddress from) {
        return apiServers.peer(from);
    }

    /** Closes one of the open connections if there are too many for a new one; returns false if the new one has to go. */
    public <C extends Connection> boolean admits(Peer newcomer, Collection<C> open, long nanoTime, Consumer<C> close) {
        if (open.size() < most) {
            return true;
        }
        List<C> others = open.stream()
                .filter(one -> !one.peer().apiServer() && !one.authenticated())
                .toList();
        List<C> candidates =
                others.isEmpty() && (newcomer.apiServer() || !apiServers.known()) ? List.copyOf(open) : others;
        Map<Long, Long> count = candidates.stream()
                .collect(Collectors.groupingBy(one -> one.peer().client(), Collectors.counting()));
        Map<Long, Long> silent = candidates.stream()
                .filter(Connection::silent)
                .collect(Collectors.groupingBy(one -> one.peer().client(), Collectors.counting()));
        boolean few = newcomer.apiServer() || count.getOrDefault(newcomer.client(), 0L) < most / PARTS;
        Optional<C> displaced = candidates.stream()
                .filter(one -> few || one.peer().client() == newcomer.client() || silentForLong(one, nanoTime))
                .max(Comparator.<C, Boolean>comparing(one -> silentForLong(one, nanoTime))
                        .thenComparing(one -> count.getOrDefault(one.peer().client(), 0L))
                        .thenComparing(one ->
                                one.silent() && silent.getOrDefault(one.peer().client(), 0L) > most / 2)
                        .thenComparing(one -> one.inactive(nanoTime)));
        displaced.ifPresent(close);
        return displaced.isPresent();
    }

    private static boolean silentForLong(Connection connection, long nanoTime) {
        return connection.silent() && connection.inactive(nanoTime) > SILENCE;
    }
}
