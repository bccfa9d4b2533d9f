package io.aliquot.deviceplugin.files;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import com.sun.jna.Memory;
import com.sun.jna.Native;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.OptionalInt;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/**
 * An open file of the host that a container can open too. While it is open for writing, the kernel grants no lease on the
 * file (fcntl(2); fs/locks.c, check_conflicting_open), and its owner and mode no longer matter. Only {@link #cut} and {@link
 * #removeAttributes} wait for what a container does with the file, and {@link #read} for 20 ms. Thread-safe.
 */
public final class HeldFile {
    private static final int RWF_NOWAIT = 8;
    private static final int LOAD_MILLIS = 20;
    private static final int AT_EMPTY_PATH = 0x1000;
    private static final int STATX_BASIC_STATS = 0x7ff;
    private static final int STATX_SIZE = 256;
    private static final int TYPE = 0xf000;
    private static final int REGULAR = 0x8000;
    private static final int WRITABLE_BY_ALL = 0666;
    private static final int SECTOR = 512;
    private static final long NANOS_PER_SECOND = 1_000_000_000;
    private static final int MOST_NAMES = 1 << 16; // bytes: XATTR_LIST_MAX
    private static final int LARGEST = 1 << 20;

    private final int fd;
    private final AtomicBoolean loading = new AtomicBoolean();

    @GuardedBy("itself")
    private final Memory argument = new Memory(STATX_SIZE);

    /** Write-locked for ever by {@link #close}. */
    private final ReentrantReadWriteLock open = new ReentrantReadWriteLock();

    /**
     * What the kernel says of a file.
     *
     * @param links 0: no folder contains the file any more
     * @param size its length
     * @param allocated bytes on the disk, those beyond its end and of large attributes included
     * @param changed when the inode changed, in nanoseconds
     */
    public record Status(int links, long size, long allocated, long changed) {}

    private HeldFile(int fd) {
        this.fd = fd;
    }

    /**
     * Opens an ordinary file, never a link.
     *
     * @param waits for a lease, which the kernel takes from a container after 45 s; else a lease is an error
     */
    static HeldFile open(Path path, boolean writable, boolean waits) throws IOException {
        int flags = Libc.O_NOFOLLOW | Libc.O_CLOEXEC | (writable ? Libc.O_RDWR : 0) | (waits ? 0 : Libc.O_NONBLOCK);
        int fd = Libc.open(path.toString(), flags);
        if (fd < 0) {
            throw Libc.error("open " + path);
        }
        var file = new HeldFile(fd);
        if (!file.isRegular()) {
            file.close();
            throw new IOException("expected an ordinary file, found something else: " + path);
        }
        return file;
    }

    /** Does not wait: the kernel keeps these figures in memory and takes no lock for them. */
    public Status status() throws IOException {
        return use(() -> {
            synchronized (argument) {
                Memory status = statx();
                return new Status(
                        status.getInt(16),
                        status.getLong(40),
                        status.getLong(48) * SECTOR,
                        status.getLong(96) * NANOS_PER_SECOND + status.getInt(104));
            }
        });
    }

    private boolean isRegular() throws IOException {
        synchronized (argument) {
            return (statx().getShort(28) & TYPE) == REGULAR;
        }
    }

    @GuardedBy("argument")
    private Memory statx() throws IOException {
        if (Libc.statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, argument) != 0) {
            throw Libc.error("statx");
        }
        return argument;
    }

    /**
     * Reads what is in memory. What is not is read in the background, for which this call waits {@value #LOAD_MILLIS} ms at
     * most: on XFS a write(2) of the container's may hold the file for 10 s.
     *
     * @param part direct
     * @return how many bytes; -1 beyond the end
     * @throws IOException also instead of waiting for longer, and while an earlier call's bytes are being read
     */
    public int read(ByteBuffer part, long at) throws IOException {
        OptionalInt count = readCached(part, at);
        if (count.isEmpty() && isLoaded()) {
            count = readCached(part, at);
        }
        return count.orElseThrow(() -> new IOException("preadv2: would wait"));
    }

    /** Empty if it would wait. */
    private OptionalInt readCached(ByteBuffer part, long at) throws IOException {
        return use(() -> {
            long count;
            synchronized (argument) {
                argument.setPointer(0, Native.getDirectBufferPointer(part).share(part.position()));
                argument.setLong(Long.BYTES, part.remaining());
                count = Libc.preadv2(fd, argument, 1, at, RWF_NOWAIT);
                if (count < 0 && Native.getLastError() == Libc.EOPNOTSUPP) {
                    count = Libc.preadv2(fd, argument, 1, at, 0); // tmpfs, overlayfs
                }
            }
            if (count < 0 && Native.getLastError() == Libc.EAGAIN) {
                return OptionalInt.empty();
            }
            if (count < 0) {
                throw Libc.error("preadv2");
            }
            part.position(part.position() + (int) count);
            return OptionalInt.of(count == 0 && part.hasRemaining() ? -1 : (int) count);
        });
    }

    private boolean isLoaded() {
        if (!loading.compareAndSet(false, true)) {
            return false;
        }
        Thread thread = Thread.ofPlatform().daemon().name("file-load").start(this::load);
        try {
            return thread.join(Duration.ofMillis(LOAD_MILLIS));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    /** Reads the file into the kernel's memory; waits for the disk and the container. */
    private void load() {
        try (var bytes = new Memory(LARGEST)) {
            use(() -> Libc.pread(fd, bytes, LARGEST, 0));
        } catch (IOException e) {
            // closed meanwhile
        } finally {
            loading.set(false);
        }
    }

    /** Writes a few bytes within the file. Only for files that containers cannot write. */
    public int write(ByteBuffer part, long at) throws IOException {
        return use(() -> {
            var bytes = new byte[part.remaining()];
            part.get(bytes);
            if (Libc.pwrite(fd, bytes, bytes.length, at) != bytes.length) {
                throw Libc.error("pwrite");
            }
            return bytes.length;
        });
    }

    /** Sets the length and frees what is beyond it. Waits for writes under way. */
    public void cut(long size) throws IOException {
        use(() -> {
            if (Libc.ftruncate(fd, size) != 0) {
                throw Libc.error("ftruncate");
            }
            return true;
        });
    }

    /**
     * Removes the attributes {@code user.*}, which each process that may write the file can set. Waits for changes of
     * attributes under way.
     *
     * @throws IOException if that is not permitted, or if their names have more than 64 KiB, which no program can list
     */
    public void removeAttributes() throws IOException {
        use(() -> {
            if (Libc.flistxattr(fd, new byte[0], 0) == 0) {
                return false;
            }
            var names = new byte[MOST_NAMES]; // a smaller one would be too small while a container adds some
            long length = Libc.flistxattr(fd, names, names.length);
            if (length < 0) {
                throw Libc.error("flistxattr");
            }
            for (int start = 0, end = 0; end < length; end++) {
                if (names[end] == 0) {
                    remove(Arrays.copyOfRange(names, start, end + 1)); // as bytes: a name need not be text
                    start = end + 1;
                }
            }
            return true;
        });
    }

    private void remove(byte[] name) throws IOException {
        if (new String(name, StandardCharsets.ISO_8859_1).startsWith("user.")
                && Libc.fremovexattr(fd, name) != 0
                && (Libc.fchmod(fd, WRITABLE_BY_ALL) != 0 || Libc.fremovexattr(fd, name) != 0)) {
            throw Libc.error("fremovexattr");
        }
    }

    /** Whether an ordinary file has this content; a lease on it does not delay the answer and counts as yes. */
    public static boolean isContent(Path path, byte[] content) throws IOException {
        if (!Files.isRegularFile(path)) {
            return false;
        }
        HeldFile held;
        try {
            held = open(path, false, false);
        } catch (IOException e) {
            return true; // a container has it from an earlier start
        }
        try {
            return Arrays.equals(Files.readAllBytes(path), content);
        } finally {
            held.close();
        }
    }

    /** A call of the kernel. */
    private interface Call<T> {
        T run() throws IOException;
    }

    private <T> T use(Call<T> call) throws IOException {
        if (!open.readLock().tryLock()) {
            throw new ClosedChannelException();
        }
        try {
            return call.run();
        } finally {
            open.readLock().unlock();
        }
    }

    /** Returns at once; the file is closed when the calls under way have ended. Only once. */
    void close() {
        // The last close of a removed file frees its space, which takes a while if a container has made it large.
        Thread.ofPlatform().daemon().name("file-close").start(() -> {
            open.writeLock().lock();
            Libc.close(fd);
        });
    }
}
