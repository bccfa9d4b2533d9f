package io.aliquot.scheduler.server;

import java.io.IOException;
import java.net.Socket;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.Comparator;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.apache.tomcat.util.net.NioEndpoint;

/*
 * A connection costs heap (66 KB with TLS, and up to 80 KB more within a request) and, while Tomcat waits for its client
 * within a request, a virtual thread. So it is the number of connections that needs a limit. If the limit refused new
 * connections, silent clients could keep the API server out. Instead a new connection replaces the one that has been
 * inactive for the longest time. To keep a client out, an attacker would have to replace all connections between the
 * client's connect and its request.
 */
/**
 * The connections of a port that every pod of the cluster can reach. No client occupies a thread that another one needs,
 * each request has a deadline from its first to its last byte, and a client always gets a connection. Thread-safe.
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

    private static final class Client {
        private final SocketChannel channel;
        private volatile Phase phase = Phase.NEW;
        private volatile long since;

        Client(SocketChannel channel, long since) {
            this.channel = channel;
            this.since = since;
        }

        void enter(Phase next, long now) {
            since = now;
            phase = next;
        }

        /** Nanoseconds. */
        long inactive(long now) {
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
    private final LongSupplier nanoTime;
    /** By the client's address and port. */
    private final Map<String, Client> clients = new ConcurrentHashMap<>();

    /**
     * Limits connections.
     *
     * @param most the number of connections without watches
     */
    PublicEndpoint(int most, LongSupplier nanoTime) {
        this.most = most;
        this.nanoTime = nanoTime;
        setUseVirtualThreads(true);
        setMaxConnections(-1);
        setAcceptCount(BACKLOG);
    }

    /** The head of a request is complete. */
    void requested(String address, int port) {
        enter(Phase.REQUEST, address, port);
    }

    /** A request is answered, or a watch has begun. */
    void answered(String address, int port, boolean watches) {
        enter(watches ? Phase.WATCH : Phase.IDLE, address, port);
    }

    private void enter(Phase next, String address, int port) {
        Optional.ofNullable(clients.get(key(address, port)))
                .ifPresent(client -> client.enter(next, nanoTime.getAsLong()));
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
        makeRoom();
        SocketChannel channel = super.serverSocketAccept();
        Socket socket = channel.socket();
        clients.put(
                key(socket.getInetAddress().getHostAddress(), socket.getPort()),
                new Client(channel, nanoTime.getAsLong()));
        return channel;
    }

    private void makeRoom() throws InterruptedException {
        if (connections.size() < most) {
            return;
        }
        clients.values().removeIf(client -> !client.channel.isOpen());
        long watches = clients.values().stream()
                .filter(client -> client.phase == Phase.WATCH)
                .count();
        if (clients.size() - watches >= most) {
            long now = nanoTime.getAsLong();
            clients.values().stream()
                    .filter(client -> client.phase != Phase.WATCH)
                    .max(Comparator.comparingLong(client -> client.inactive(now)))
                    .ifPresent(oldest -> {
                        clients.values().remove(oldest);
                        oldest.disconnect();
                    });
        }
        while (isRunning() && connections.size() - watches >= most + CLOSING) {
            TimeUnit.MICROSECONDS.sleep(200);
        }
    }

    private static String key(String address, int port) {
        return address + ' ' + port;
    }
}
