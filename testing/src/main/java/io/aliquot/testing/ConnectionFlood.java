package io.aliquot.testing;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A client of one loopback address that opens connections to a port as fast as it can, and keeps the latest. Each ends
 * with an RST, so that none occupies a port in TIME_WAIT.
 */
public final class ConnectionFlood implements AutoCloseable {
    private static final int THREADS = 4;
    /** Open at the same time, by each thread. */
    private static final int KEPT = 150;

    private final AtomicInteger opened = new AtomicInteger();
    private final List<Thread> threads = new ArrayList<>();
    private final InetAddress from;
    private final int port;
    private final byte[] first;
    private volatile boolean over;

    private ConnectionFlood(InetAddress from, int port, byte[] first) {
        this.from = from;
        this.port = port;
        this.first = first.clone();
    }

    /**
     * Starts.
     *
     * @param first what each connection sends at once; empty for nothing
     */
    public static ConnectionFlood start(InetAddress from, int port, byte[] first) {
        var flood = new ConnectionFlood(from, port, first);
        for (int i = 0; i < THREADS; i++) {
            flood.threads.add(Thread.ofPlatform().daemon().name("flood").start(flood::open));
        }
        return flood;
    }

    /** The number of connections that were opened so far. */
    public int opened() {
        return opened.get();
    }

    private void open() {
        var kept = new ArrayDeque<Socket>();
        while (!over) {
            try {
                kept.add(connect());
                opened.incrementAndGet();
            } catch (IOException e) {
                // The port has closed it already.
            }
            if (kept.size() > KEPT) {
                close(kept.remove());
            }
        }
        kept.forEach(ConnectionFlood::close);
    }

    private Socket connect() throws IOException {
        var socket = new Socket();
        try {
            socket.setSoLinger(true, 0);
            socket.bind(new InetSocketAddress(from, 0));
            socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 2_000);
            socket.getOutputStream().write(first);
            return socket;
        } catch (IOException e) {
            close(socket);
            throw e;
        }
    }

    private static void close(Socket socket) {
        try {
            socket.close();
        } catch (IOException e) {
            // It is closed already.
        }
    }

    @Override
    public void close() {
        over = true;
        for (Thread thread : threads) {
            try {
                thread.join();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
