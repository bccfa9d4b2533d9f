package io.aliquot.testing;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A TCP proxy to a port of this machine that fails on demand: it resets connections, refuses new ones, or discards data
 * without closing, as a network does that drops all packets.
 */
public final class FaultyTcpProxy implements AutoCloseable {
    private record Connection(Socket client, Socket server) {
        void reset() {
            try (client;
                    server) {
                // Linger 0 makes close() send an RST instead of a FIN.
                client.setSoLinger(true, 0);
                server.setSoLinger(true, 0);
            } catch (IOException e) {
                // it is closed already
            }
        }
    }

    private final int targetPort;
    private final int port;
    private final AtomicInteger accepted = new AtomicInteger();
    private final AtomicInteger discarded = new AtomicInteger();
    private final Set<Connection> connections = ConcurrentHashMap.newKeySet();
    /** Connections whose data is discarded until they close. */
    private final Set<Connection> silenced = ConcurrentHashMap.newKeySet();

    private volatile boolean dropAll;
    private volatile boolean dropResponses;
    private volatile boolean stopped;
    private ServerSocket listener;
    private Thread acceptor;

    /** Opens a port that forwards to {@code targetPort}. */
    public FaultyTcpProxy(int targetPort) throws IOException {
        this.targetPort = targetPort;
        ServerSocket socket = listen(0);
        this.listener = socket;
        this.acceptor = startDaemon(() -> accept(socket));
        this.port = socket.getLocalPort();
    }

    private static ServerSocket listen(int at) throws IOException {
        var socket = new ServerSocket();
        socket.setReuseAddress(true);
        socket.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), at));
        return socket;
    }

    public int port() {
        return port;
    }

    /** The number of connections accepted since the start. */
    public int connections() {
        return accepted.get();
    }

    /** How often data of one of the sides was discarded since the start. */
    public int discarded() {
        return discarded.get();
    }

    /** Resets every connection; new ones work. */
    public void resetConnections() {
        connections.forEach(Connection::reset);
        connections.clear();
    }

    /** Resets every connection and refuses new ones. */
    public synchronized void stopListening() throws InterruptedException {
        stopped = true;
        close(listener);
        acceptor.join(); // the kernel accepts connections until the call accept() has returned
        resetConnections();
    }

    public synchronized void startListening() throws InterruptedException {
        for (int i = 1; stopped; i++) {
            try {
                ServerSocket socket = listen(port);
                listener = socket;
                acceptor = startDaemon(() -> accept(socket));
                stopped = false;
            } catch (BindException e) { // the kernel has not released the port yet
                if (i == 100) {
                    throw new UncheckedIOException(e);
                }
                TimeUnit.MILLISECONDS.sleep(50);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }

    /** Discards all data from now on, of existing and new connections; neither side is notified. */
    public void dropAll() {
        dropAll = true;
    }

    /** Forwards requests and discards responses from now on, of existing and new connections. */
    public void dropResponses() {
        dropResponses = true;
    }

    /** Forwards new connections again. Existing ones stay silent, as if a firewall had lost their state. */
    public void stopDropping() {
        silenced.addAll(connections);
        dropAll = false;
        dropResponses = false;
    }

    private void accept(ServerSocket socket) {
        while (!socket.isClosed()) {
            try {
                Socket client = socket.accept();
                accepted.incrementAndGet();
                var connection = new Connection(client, new Socket(InetAddress.getLoopbackAddress(), targetPort));
                connections.add(connection);
                startDaemon(() -> forward(connection, connection.client(), connection.server(), false));
                startDaemon(() -> forward(connection, connection.server(), connection.client(), true));
            } catch (IOException e) {
                // the listener was closed, or nothing listens on the target port
            }
        }
    }

    private void forward(Connection connection, Socket from, Socket to, boolean response) {
        var buffer = new byte[1 << 16];
        try {
            InputStream in = from.getInputStream();
            OutputStream out = to.getOutputStream();
            for (int n = in.read(buffer); n >= 0; n = in.read(buffer)) {
                if (dropAll || (dropResponses && response) || silenced.contains(connection)) {
                    silenced.add(connection);
                    discarded.incrementAndGet();
                } else {
                    out.write(buffer, 0, n);
                }
            }
            if (!silenced.contains(connection)) {
                // Forwards a FIN as a FIN: an RST could discard data that the other side has not read yet.
                to.shutdownOutput();
                if (!from.isOutputShutdown()) {
                    return; // the other direction is still open
                }
            }
        } catch (IOException e) {
            // one side has failed; both are reset below
        }
        if (!silenced.contains(connection)) {
            connection.reset();
            connections.remove(connection);
        }
    }

    private static Thread startDaemon(Runnable work) {
        var thread = new Thread(work, "faulty-tcp-proxy");
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static void close(ServerSocket socket) {
        try {
            socket.close();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public void close() {
        close(listener);
        resetConnections();
        silenced.forEach(Connection::reset);
    }
}
