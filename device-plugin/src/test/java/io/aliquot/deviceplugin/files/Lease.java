package io.aliquot.deviceplugin.files;

import com.sun.jna.Native;
import java.nio.file.Path;

/** Takes a lease on a file, as the file's owner in a container can, and takes it again whenever the kernel breaks it. */
public final class Lease {
    private static final int F_SETSIG = 10;
    private static final int F_SETLEASE = 1024;
    private static final int SIGURG = 23; // ignored, unlike SIGIO

    private final int fd;
    private final int kind;
    private final Thread thread = new Thread(this::run, "lease");
    private volatile boolean closed;

    /** What the lease keeps others from. */
    public enum Kind {
        WRITING,
        READING
    }

    static {
        Native.register(Lease.class, "c");
    }

    private static native int open(String path, int flags);

    private static native int close(int fd);

    private static native int fcntl(int fd, int command, long argument);

    private Lease(Path file, Kind kind) {
        fd = open(file.toString(), 0);
        this.kind = kind == Kind.WRITING ? 0 : 1; // F_RDLCK, F_WRLCK
    }

    /** Whether one can be taken. */
    public static boolean isGranted(Path file, Kind kind) {
        var lease = new Lease(file, kind);
        try {
            return fcntl(lease.fd, F_SETLEASE, lease.kind) == 0;
        } finally {
            close(lease.fd);
        }
    }

    /** What is done meanwhile. */
    public interface Body {
        void run() throws Exception;
    }

    /** Holds one while something is done. */
    public static void during(Path file, Kind kind, Body body) throws Exception {
        var lease = new Lease(file, kind);
        fcntl(lease.fd, F_SETSIG, SIGURG);
        if (fcntl(lease.fd, F_SETLEASE, lease.kind) != 0) {
            throw new IllegalStateException("no lease on " + file);
        }
        lease.thread.setDaemon(true);
        lease.thread.start();
        try {
            body.run();
        } finally {
            lease.closed = true;
            lease.thread.join();
            close(lease.fd);
        }
    }

    private void run() {
        while (!closed) {
            fcntl(fd, F_SETLEASE, kind);
            Thread.onSpinWait();
        }
    }
}
