package io.aliquot.scheduler.extensionapi;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.ArrayDeque;
import java.util.Deque;

/**
 * A client that opens connections to a port as fast as it can, several thousand a second, and keeps the latest. Each ends
 * with an RST, so that none occupies a port in TIME_WAIT.
 */
final class ConnectionFlood implements AutoCloseable {
    private static final int KEPT = 600;

    private final Deque<Socket> kept = new ArrayDeque<>();
    private final InetSocketAddress from;
    private final InetSocketAddress to;
    private final byte[] first;

    /**
     * Opens nothing yet.
     *
     * @param first what each connection sends at once; empty for nothing
     */
    ConnectionFlood(InetAddress from, int port, byte[] first) {
        this.from = new InetSocketAddress(from, 0);
        this.to = new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
        this.first = first.clone();
    }

    void open(int connections) throws IOException {
        for (int i = 0; i < connections; i++) {
            var socket = new Socket();
            kept.add(socket);
            socket.setSoLinger(true, 0);
            socket.bind(from);
            try {
                socket.connect(to);
                socket.getOutputStream().write(first);
            } catch (IOException e) {
                // The port has closed it already.
            }
            if (kept.size() > KEPT) {
                kept.remove().close();
            }
        }
    }

    @Override
    public void close() throws IOException {
        for (Socket socket : kept) {
            socket.close();
        }
    }
}
