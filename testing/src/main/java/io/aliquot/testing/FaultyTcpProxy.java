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
 * The way to a port of this machine, which can be made to fail: connections can be broken, refused, or fall silent as
 * when a network drops all packets.
 */
public final class FaultyTcpProxy implements AutoCloseable {
    private record Link(Socket client, Socket server) {
        void cut() {
            try (client;
                    server) {
                // An RST each way rather than a polite end.
                client.setSoLinger(true, 0);
                server.setSoLinger(true, 0);
            } catch (IOException e) {
                // it was closed already
            }
        }
    }

    private final int to;
    private final int port;
    private final AtomicInteger accepted = new AtomicInteger();
    private final Set<Link> links = ConcurrentHashMap.newKeySet();
    /** Links that carry nothing any more, and never will again. */
    private final Set<Link> dead = ConcurrentHashMap.newKeySet();

    private volatile boolean silent;
    private volatile boolean deaf;
    private volatile boolean down;
    private ServerSocket door;

    /** Opens a port that leads to the port {@code to}. */
    public FaultyTcpProxy(int to) throws IOException {
        this.to = to;
        this.door = open(0);
        this.port = door.getLocalPort();
    }

    private ServerSocket open(int at) throws IOException {
        var socket = new ServerSocket();
        socket.setReuseAddress(true);
        socket.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), at));
        daemon(() -> accept(socket));
        return socket;
    }

    public int port() {
        return port;
    }

    /** Connections so far. */
    public int connections() {
        return accepted.get();
    }

    /** Breaks every connection; new ones work. */
    public void cut() {
        links.forEach(Link::cut);
        links.clear();
    }

    /** Breaks every connection and refuses new ones. */
    public synchronized void takeDown() {
        down = true;
        close(door);
        cut();
    }

    public synchronized void bringUp() throws InterruptedException {
        for (int i = 1; down; i++) {
            try {
                door = open(port);
                down = false;
            } catch (BindException e) { // the old one is still being let go
                if (i == 100) {
                    throw new UncheckedIOException(e);
                }
                TimeUnit.MILLISECONDS.sleep(50);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }

    /** From now on nothing arrives, on connections that are there and on new ones, and nobody is told. */
    public void fallSilent() {
        silent = true;
    }

    /** What is sent arrives, on connections that are there and on new ones, but no answer comes back. */
    public void loseAnswers() {
        deaf = true;
    }

    /** New connections work again. Those that were there stay silent for ever, as where a firewall has forgotten them. */
    public void speakAgain() {
        dead.addAll(links);
        silent = false;
        deaf = false;
    }

    private void accept(ServerSocket socket) {
        while (!socket.isClosed()) {
            try {
                Socket client = socket.accept();
                accepted.incrementAndGet();
                var link = new Link(client, new Socket(InetAddress.getLoopbackAddress(), to));
                links.add(link);
                if (socket.isClosed()) { // meanwhile: whoever closed it may have looked for links already
                    link.cut();
                    links.remove(link);
                    return;
                }
                daemon(() -> carry(link, link.client(), link.server(), false));
                daemon(() -> carry(link, link.server(), link.client(), true));
            } catch (IOException e) {
                // the door was closed, or nobody listens behind it; who came in is told by his socket's end
            }
        }
    }

    private void carry(Link link, Socket from, Socket into, boolean answers) {
        var buffer = new byte[1 << 16];
        try {
            InputStream in = from.getInputStream();
            OutputStream out = into.getOutputStream();
            for (int n = in.read(buffer); n >= 0; n = in.read(buffer)) {
                if (silent || (deaf && answers) || dead.contains(link)) {
                    dead.add(link);
                } else {
                    out.write(buffer, 0, n);
                }
            }
            if (!dead.contains(link)) {
                // A polite end stays one: with an RST the other side may lose what was said just before.
                into.shutdownOutput();
                if (!from.isOutputShutdown()) {
                    return; // the other direction goes on
                }
            }
        } catch (IOException e) {
            // one side has gone, so the other goes
        }
        if (!dead.contains(link)) {
            link.cut();
            links.remove(link);
        }
    }

    private static void daemon(Runnable work) {
        var thread = new Thread(work, "wire");
        thread.setDaemon(true);
        thread.start();
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
        close(door);
        cut();
        dead.forEach(Link::cut);
    }
}
