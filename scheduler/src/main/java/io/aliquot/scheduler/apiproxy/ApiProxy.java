package io.aliquot.scheduler.apiproxy;

import io.aliquot.api.ports.ApiServers;
import io.aliquot.api.ports.FullPort;
import io.aliquot.api.ports.Peer;
import io.aliquot.scheduler.certificate.MountedSecret;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongSupplier;

/*
 * An aggregated API without a backend keeps every namespace of the cluster in Terminating, because the namespace
 * controller waits for the discovery of all groups (kubernetes, pkg/controller/namespace/deletion). So something that does
 * not fall with the scheduler must answer discovery, and an APIService has one backend for discovery and objects.
 *
 * This proxy forwards bytes. The scheduler ends TLS, checks the front proxy's certificate and reads the user, as without
 * it; the proxy sees no request while a scheduler can be reached. Only where none can, it passes the connection on to a
 * server of its own, which tells what is public (Discovery) and answers 503 to all else. In TLS the client speaks first: a
 * client that has sent nothing costs the scheduler no connection.
 */
/**
 * Forwards the connections of the aggregated API's port to a scheduler, each for itself; to {@link StandIn} while none
 * accepts a connection. Every pod can connect, so the number of connections has a limit, and {@link FullPort} says which
 * one a new one closes. Thread-safe.
 */
public final class ApiProxy implements AutoCloseable {
    /** Connections at the same time. Each has two buffers and two virtual threads: 256 have about 5 MB. */
    private static final int MOST = 256;

    /** Of these to the stand-in: TLS costs 66 KB of heap for each. */
    private static final int MOST_WITHOUT_SCHEDULER = 32;

    private static final int BUFFER = 8 << 10;
    private static final int BACKLOG = 1024;
    /** From the connect to the client's first byte, as in the scheduler. */
    private static final Duration SILENCE = Duration.ofSeconds(10);
    /** To the scheduler's Service. Without a ready replica kube-proxy refuses at once; some networks drop instead. */
    private static final Duration CONNECT = Duration.ofSeconds(1);
    /** From one side's end of a connection to the other's. */
    private static final Duration ENDING = Duration.ofSeconds(5);
    /** Of a connection to the stand-in, which answers one request over it. */
    private static final Duration LONGEST_WITHOUT_SCHEDULER = Duration.ofSeconds(30);

    /** With the certificate of the replicas, by the chart's name. */
    private static final String SECRET = "aliquot-webhook-tls";

    private static final Duration SWEEP = Duration.ofSeconds(1);

    private final ServerSocket port;
    private final FullPort full;
    private final FullPort fullWithoutScheduler;
    private final InetSocketAddress scheduler;
    private final StandIn standIn;
    private final LongSupplier nanoTime;
    private final Set<Connection> connections = ConcurrentHashMap.newKeySet();

    /**
     * Opens the port; the certificate must be there.
     *
     * @param port 0 lets the system choose one
     * @param scheduler the address of its ready replicas
     * @param tls the folder with {@code tls.crt} and {@code tls.key}, which may be replaced at any time
     */
    public ApiProxy(int port, InetSocketAddress scheduler, Path tls, ApiServers apiServers, LongSupplier nanoTime)
            throws IOException {
        this.full = new FullPort(MOST, apiServers);
        this.fullWithoutScheduler = new FullPort(MOST_WITHOUT_SCHEDULER, apiServers);
        this.scheduler = scheduler;
        this.nanoTime = nanoTime;
        this.standIn = new StandIn(tls);
        this.port = new ServerSocket(port, BACKLOG);
    }

    /**
     * Runs until the process is killed. The port opens once the certificate is there.
     *
     * @param arguments the port to listen on; the folder with {@code tls.crt} and {@code tls.key}, which may appear later
     * @param environment {@code ALIQUOT_WEBHOOK_SERVICE_HOST} and {@code _PORT}, which the kubelet sets for the Service
     *     {@code aliquot-webhook}; {@link ApiServers#VARIABLE}
     */
    public static void run(List<String> arguments, Map<String, String> environment, LongSupplier nanoTime)
            throws IOException, InterruptedException {
        String host = environment.getOrDefault("ALIQUOT_WEBHOOK_SERVICE_HOST", "");
        if (host.isEmpty()) {
            throw new IllegalStateException(
                    "expected ALIQUOT_WEBHOOK_SERVICE_HOST in the environment, found none: the Service aliquot-webhook must"
                            + " exist before this container starts");
        }
        Path tls = Path.of(arguments.get(1));
        MountedSecret.await(tls.resolve("tls.crt"), SECRET);
        int servicePort = Integer.parseInt(environment.getOrDefault("ALIQUOT_WEBHOOK_SERVICE_PORT", "443"));
        var proxy = new ApiProxy(
                Integer.parseInt(arguments.get(0)),
                new InetSocketAddress(InetAddress.getByName(host), servicePort),
                tls,
                ApiServers.parse(ApiServers.VARIABLE, environment.getOrDefault(ApiServers.VARIABLE, "")),
                nanoTime);
        System.out.println("Forwards port " + proxy.port() + " to " + host + ":" + servicePort);
        proxy.serve();
    }

    /** The port that is open. */
    public int port() {
        return port.getLocalPort();
    }

    /** Accepts connections until the port is closed. */
    public void serve() throws IOException {
        Thread.ofPlatform().daemon().name("sweeper").start(this::sweep);
        while (true) {
            Socket client;
            try {
                client = port.accept();
            } catch (IOException e) {
                if (port.isClosed()) {
                    return;
                }
                throw e; // the process ends, and the kubelet starts it again
            }
            var connection = new Connection(client);
            if (full.admits(connection.peer, connections, connection.accepted, Connection::close)) {
                connections.add(connection);
                Thread.ofVirtual().start(connection::forward);
            } else {
                connection.close();
            }
        }
    }

    private void sweep() {
        try {
            while (!port.isClosed()) {
                TimeUnit.NANOSECONDS.sleep(SWEEP.toNanos());
                long now = nanoTime.getAsLong();
                connections.stream()
                        .filter(connection -> now - connection.deadline > 0)
                        .forEach(Connection::close);
                standIn.reload();
            }
        } catch (InterruptedException e) {
            // The process ends.
        }
    }

    @Override
    public void close() throws IOException {
        port.close();
        connections.forEach(Connection::close);
        standIn.close();
    }

    /** A client's connection and the one to its server. */
    private final class Connection implements FullPort.Connection {
        private final Socket client;
        private final Peer peer;
        private final Socket server = new Socket();
        /** The connection to the stand-in, if there is one. */
        private volatile Socket other = server;

        private final AtomicInteger open = new AtomicInteger(2);
        private final long accepted = nanoTime.getAsLong();
        private volatile boolean silent = true;
        private volatile long active = accepted;
        private volatile long deadline = accepted + SILENCE.toNanos();

        Connection(Socket client) {
            this.client = client;
            this.peer = full.peer(client.getInetAddress());
        }

        @Override
        public Peer peer() {
            return peer;
        }

        @Override
        public boolean silent() {
            return silent;
        }

        /** The stand-in answers one request over a connection, so bytes that come later do not count. */
        @Override
        public long inactive(long now) {
            return now - (other == server ? active : accepted);
        }

        void forward() {
            var buffer = new byte[BUFFER];
            try {
                int length = client.getInputStream().read(buffer);
                if (length < 0) {
                    close();
                    return;
                }
                silent = false;
                deadline = accepted + Long.MAX_VALUE / 2;
                Socket connected = connect();
                for (Socket socket : new Socket[] {client, connected}) {
                    socket.setTcpNoDelay(true);
                    socket.setKeepAlive(true);
                }
                if (!connections.contains(this)) { // closed meanwhile, when it had no second socket yet
                    close();
                    return;
                }
                Thread.ofVirtual().start(() -> copy(connected, client, new byte[BUFFER], 0));
                copy(client, connected, buffer, length);
            } catch (IOException | RuntimeException e) {
                close();
            }
        }

        private Socket connect() throws IOException {
            try {
                server.connect(scheduler, (int) CONNECT.toMillis());
                return server;
            } catch (IOException e) {
                server.close();
                deadline = nanoTime.getAsLong() + LONGEST_WITHOUT_SCHEDULER.toNanos();
                synchronized (standIn) {
                    List<Connection> others = connections.stream()
                            .filter(connection -> connection.other != connection.server)
                            .toList();
                    if (!fullWithoutScheduler.admits(peer, others, nanoTime.getAsLong(), Connection::close)) {
                        throw new IOException("the stand-in serves API servers");
                    }
                    other = standIn.connect();
                }
                return other;
            }
        }

        /** Copies until the end, first so many bytes that the buffer has already. */
        private void copy(Socket from, Socket to, byte[] buffer, int read) {
            try {
                InputStream in = from.getInputStream();
                OutputStream out = to.getOutputStream();
                for (int length = read; length >= 0; length = in.read(buffer)) {
                    active = nanoTime.getAsLong();
                    out.write(buffer, 0, length);
                }
                to.shutdownOutput();
                deadline = Math.min(deadline, nanoTime.getAsLong() + ENDING.toNanos());
            } catch (IOException e) {
                close();
                return;
            }
            if (open.decrementAndGet() == 0) {
                close();
            }
        }

        void close() {
            connections.remove(this);
            for (Socket socket : new Socket[] {client, server, other}) {
                try {
                    socket.close();
                } catch (IOException e) {
                    // It is closed already.
                }
            }
        }
    }
}
