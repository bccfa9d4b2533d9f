package io.aliquot.scheduler.extensionapi.machinery;

import io.aliquot.scheduler.scoring.CacheSizes;
import java.util.ArrayList;
import java.util.List;
import java.util.NavigableMap;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import java.util.function.ToLongFunction;
import org.jspecify.annotations.Nullable;

/*
 * Versions are the API server's resourceVersions, which every replica sees in the same order, so a client can continue
 * at one replica what it began at another. A list has the newest version that the store has reached; a watch from
 * version v gets each event after v. An event may come twice, never not at all: what cannot be replayed is refused
 * (410, the client lists again).
 *
 * The log is also the queue of every watcher: a watcher remembers only its position. One that falls behind the oldest
 * event of the log has to be dropped. The log ends where its objects take too much: a tenant chooses the labels of his pods,
 * and how often they change.
 *
 * A lock instead of a monitor, since watchers are virtual threads: before JDK 24, one that waits in a monitor keeps its
 * carrier thread.
 */
/** The objects of one resource and the log of their latest changes, as in the API server's cacher. Thread-safe. */
public final class WatchCache<T> {
    public static final int LOG_LENGTH = 16_384;
    private static final long MOST_BYTES = CacheSizes.limit(64 << 20, 1);
    private static final long NOT_LISTED = -1;

    /**
     * A change of an object.
     *
     * @param version after which the object has changed; {@link Long#MAX_VALUE} if unknown, so that each watch gets it
     * @param shown the version that the event has for watchers
     * @param before null for a new object
     * @param after null for a deleted object
     */
    record Event<T>(
            long version,
            long shown,
            @Nullable T before,
            @Nullable T after) {}

    /** All objects at one time, and the position of the log after them. */
    record Snapshot<T>(List<T> objects, long sequence, long version) {}

    /**
     * Some events of the log.
     *
     * @param next the position after them
     * @param version up to which the reader has seen every change now; empty if there are further events
     */
    record Batch<T>(List<Event<T>> events, long next, OptionalLong version) {}

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final ConcurrentSkipListMap<String, T> objects = new ConcurrentSkipListMap<>();
    /** A ring: the event of position n is at n modulo its length. */
    private final List<@Nullable Event<T>> log = new ArrayList<>();

    private final ToLongFunction<T> bytesOf;
    /** What the objects of the log take, estimated. */
    private long bytes;

    private long oldest;
    private long nextSequence;
    /** No event after this version is missing in the log. */
    private long floor = NOT_LISTED;

    private volatile long newest;

    /**
     * Without objects.
     *
     * @param bytesOf what an object takes, at least
     */
    public WatchCache(ToLongFunction<T> bytesOf) {
        this.bytesOf = bytesOf;
    }

    public Optional<T> find(String key) {
        return Optional.ofNullable(objects.get(key));
    }

    /**
     * The objects whose keys begin with the prefix and come after another key, in the order of their keys.
     *
     * @param key empty for all
     * @throws IllegalArgumentException if the key does not begin with the prefix
     */
    public NavigableMap<String, T> after(String prefix, String key) {
        NavigableMap<String, T> ofPrefix =
                prefix.isEmpty() ? objects : objects.subMap(prefix, true, prefix + Character.MAX_VALUE, false);
        return key.isEmpty() ? ofPrefix : ofPrefix.tailMap(key, false);
    }

    /** The newest version that this process has seen. Read before the objects, so that a watch from it misses nothing. */
    public long version() {
        return newest;
    }

    public void put(String key, T object, long version) {
        put(key, object, version, version);
    }

    /**
     * Adds or replaces an object.
     *
     * @param reached the version that the event shows
     * @param version watches from earlier ones get the event
     */
    public void put(String key, T object, long reached, long version) {
        change(() -> {
            T before = objects.put(key, object);
            newest = Math.max(newest, reached);
            append(version, newest, before, object);
        });
    }

    /** Removes an object; {@code version} is that of the deletion if it is known. */
    public void remove(String key, OptionalLong version) {
        remove(key, version.orElse(0), version.orElse(Long.MAX_VALUE));
    }

    /** Removes an object; see {@link #put(String, Object, long, long)}. */
    public void remove(String key, long reached, long version) {
        change(() -> {
            T before = objects.remove(key);
            newest = Math.max(newest, reached);
            if (before != null) {
                append(version, reached > 0 ? reached : newest, before, null);
            }
        });
    }

    private void append(long version, long shown, @Nullable T before, @Nullable T after) {
        if (floor == NOT_LISTED) {
            return; // a watch begins with a list
        }
        var event = new Event<>(version, shown, before, after);
        int at = (int) (nextSequence % LOG_LENGTH);
        if (nextSequence - oldest == LOG_LENGTH) {
            drop();
        }
        if (at == log.size()) {
            log.add(event);
        } else {
            log.set(at, event);
        }
        nextSequence++;
        bytes += bytes(event);
        while (bytes > MOST_BYTES) {
            drop();
        }
        changed.signalAll();
    }

    private void drop() {
        Event<T> event = Objects.requireNonNull(log.set((int) (oldest % LOG_LENGTH), null));
        floor = Math.max(floor, event.shown());
        bytes -= bytes(event);
        oldest++;
    }

    /** What was there before is in the event before. */
    private long bytes(Event<T> event) {
        T object = event.after() == null ? event.before() : event.after();
        return object == null ? 0 : bytesOf.applyAsLong(object);
    }

    /** A list is complete; a change before it may be missing in the log, or be in it in any order. */
    public void listed(long version) {
        change(() -> {
            newest = Math.max(newest, version);
            floor = Math.max(floor, version);
        });
    }

    /** Every change up to this version is in the store. */
    public void reached(long version) {
        change(() -> newest = Math.max(newest, version));
    }

    /** Whether a watch or list can be continued from this version. */
    public boolean covers(long version) {
        return locked(() -> floor != NOT_LISTED && version >= floor);
    }

    public Snapshot<T> snapshot() {
        return locked(() -> new Snapshot<>(new ArrayList<>(objects.values()), nextSequence, newest));
    }

    /** The position of the oldest event in the log. */
    long oldest() {
        return locked(() -> oldest);
    }

    private void change(Runnable change) {
        lock.lock();
        try {
            change.run();
        } finally {
            lock.unlock();
        }
    }

    private <R> R locked(Supplier<R> read) {
        lock.lock();
        try {
            return read.get();
        } finally {
            lock.unlock();
        }
    }

    /**
     * The events from this position on, at most this many; waits for one if there is none.
     *
     * @return empty if the position is no longer in the log
     */
    @SuppressWarnings("WaitNotInLoop") // the caller's loop: a spurious wakeup returns no events
    Optional<Batch<T>> await(long sequence, int most, long millis) throws InterruptedException {
        lock.lockInterruptibly();
        try {
            if (sequence == nextSequence && millis > 0) {
                boolean unused = changed.await(millis, TimeUnit.MILLISECONDS);
            }
            if (sequence < oldest) {
                return Optional.empty();
            }
            var events = new ArrayList<Event<T>>();
            long end = Math.min(nextSequence, sequence + most);
            for (long position = sequence; position < end; position++) {
                events.add(Objects.requireNonNull(log.get((int) (position % LOG_LENGTH))));
            }
            return Optional.of(
                    new Batch<>(events, end, end == nextSequence ? OptionalLong.of(newest) : OptionalLong.empty()));
        } finally {
            lock.unlock();
        }
    }
}
