package io.aliquot.scheduler.server.ports;

import io.aliquot.api.ports.ApiServers;
import io.aliquot.api.ports.FullPort;
import io.aliquot.api.ports.Peer;
import java.io.IOException;
import java.net.Socket;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.apache.tomcat.util.net.NioEndpoint;

/*
 * A connection costs heap (66 KB with TLS, and up to 80 KB more within a request) and, while Tomcat waits for its client
 * within a request, a virtual thread. So it is the number of connections that needs a limit.
 */
/**
 * The connections of a port that every pod of the cluster can reach. No client occupies a thread that another one needs,
 * each request has a deadline from its first to its last byte, and {@link FullPort} says which connection a new one
 * closes. Thread-safe.
 */
final class PublicEndpoint extends NioEndpoint {
    /** A request counts as younger by this than an idle connection, so that new connections do not end reviews. */
    private static final Duration ADVANTAGE = Duration.ofSeconds(1);

    /** Connections that may be over the limit while Tomcat frees what they used. */
    private static final int CLOSING = 32;

    /** Connections that the kernel has accepted and Tomcat has not. If they are more, a client connects a second later. */
    private static final int BACKLOG = 1024;

    /** What a connection does, and for how long it may. */
    private enum Phase {
        /** Has sent no head of a request. */
        NEW(PortPolicy.READ_TIMEOUT),
        /** Has sent the head of a request, and not got all of the answer. */
        REQUEST(PortPolicy.REQUEST_TIMEOUT),
        /** Has been answered. */
        IDLE(PortPolicy.IDLE_TIMEOUT.plus(PortPolicy.READ_TIMEOUT)),
        /** Watches. Watches are of authenticated users, and have a limit and a timeout of their own. */
        WATCH(Duration.ofNanos(Long.MAX_VALUE));

        private final long longest;

        Phase(Duration longest) {
            this.longest = longest.toNanos();
        }
    }

    private static final class Client implements FullPort.Connection {
        private final SocketChannel channel;
        private final Peer peer;
        private volatile Phase phase = Phase.NEW;
        private volatile long since;
        private volatile boolean authenticated;

        Client(SocketChannel channel, Peer peer, long since) {
            this.channel = channel;
            this.peer = peer;
            this.since = since;
        }

        @Override
        public Peer peer() {
            return peer;
        }

        @Override
        public boolean silent() {
            return phase == Phase.NEW;
        }

        @Override
        public boolean authenticated() {
            return authenticated;
        }

        void enter(Phase next, long now) {
            since = now;
            phase = next;
        }

        @Override
        public long inactive(long now) {
            return now - since - (phase == Phase.REQUEST ? ADVANTAGE.toNanos() : 0);
        }

        /** Tomcat, which may be using the connection now, finds its end and frees it. */
        void disconnect() {
            try {
                channel.shutdownInput();
                channel.shutdownOutput();
            } catch (IOException e) {
                // It is closed already.
            }
        }
    }

    private final int most;
    private final FullPort full;
    private final LongSupplier nanoTime;
    /** By the client's address and port. */
    private final Map<String, Client> clients = new ConcurrentHashMap<>();

    /**
     * Limits connections.
     *
     * @param most the number of connections without watches
     */
    PublicEndpoint(int most, ApiServers apiServers, LongSupplier nanoTime) {
        this.most = most;
        this.full = new FullPort(most, apiServers);
        this.nanoTime = nanoTime;
        setUseVirtualThreads(true);
        setMaxConnections(-1);
        setAcceptCount(BACKLOG);
    }

    /** The head of a request is complete. */
    void requested(String address, int port) {
        enter(Phase.REQUEST, address, port);
    }

    /** A request is answered, or a watch has begun; the client has proved to be an API server or a replica, or not. */
    void answered(String address, int port, boolean watches, boolean authenticated) {
        enter(watches ? Phase.WATCH : Phase.IDLE, address, port)
                .filter(client -> authenticated)
                .ifPresent(client -> client.authenticated = true);
    }

    private Optional<Client> enter(Phase next, String address, int port) {
        Optional<Client> found = Optional.ofNullable(clients.get(key(address, port)));
        found.ifPresent(client -> client.enter(next, nanoTime.getAsLong()));
        return found;
    }

    /** Disconnects clients whose deadline has passed; to be called about once a second. */
    void disconnectLateClients() {
        long now = nanoTime.getAsLong();
        clients.values().removeIf(client -> {
            boolean late = now - client.since > client.phase.longest;
            if (late) {
                client.disconnect();
            }
            return late || !client.channel.isOpen();
        });
    }

    /** The number of open connections. */
    int size() {
        return connections.size();
    }

    @Override
    protected SocketChannel serverSocketAccept() throws Exception {
        while (true) {
            waitForClosing();
            SocketChannel channel = super.serverSocketAccept();
            Socket socket = channel.socket();
            var client = new Client(channel, full.peer(socket.getInetAddress()), nanoTime.getAsLong());
            if (admits(client)) {
                clients.put(key(socket.getInetAddress().getHostAddress(), socket.getPort()), client);
                return channel;
            }
            channel.close();
        }
    }

    private boolean admits(Client newcomer) {
        if (connections.size() < most) {
            return true;
        }
        clients.values().removeIf(client -> !client.channel.isOpen());
        List<Client> open = clients.values().stream()
                .filter(client -> client.phase != Phase.WATCH)
                .toList();
        return full.admits(newcomer.peer, open, newcomer.since, displaced -> {
            clients.values().remove(displaced);
            displaced.disconnect();
        });
    }

    private void waitForClosing() throws InterruptedException {
        while (isRunning() && connections.size() >= most + CLOSING) {
            long watches = clients.values().stream()
                    .filter(client -> client.phase == Phase.WATCH)
                    .count();
            if (connections.size() - watches < most + CLOSING) {
                return;
            }
            TimeUnit.MICROSECONDS.sleep(200);
        }
    }

    private static String key(String address, int port) {
        return address + ' ' + port;
    }
}
