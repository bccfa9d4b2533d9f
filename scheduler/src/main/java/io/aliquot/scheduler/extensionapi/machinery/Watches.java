package io.aliquot.scheduler.extensionapi.machinery;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.ApiObject;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.WatchEvent;
import io.aliquot.scheduler.extensionapi.machinery.WatchCache.Batch;
import io.aliquot.scheduler.extensionapi.machinery.WatchCache.Event;
import io.aliquot.scheduler.extensionapi.machinery.WatchCache.Snapshot;
import io.aliquot.scheduler.scoring.CacheSizes;
import io.aliquot.scheduler.server.errors.Problems;
import jakarta.servlet.AsyncContext;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.ServletOutputStream;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.LongSupplier;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.context.event.ContextClosedEvent;
import org.springframework.context.event.EventListener;
import org.springframework.stereotype.Component;

/*
 * A watch has a virtual thread, which writes and blocks. A client that does not read blocks only its own thread: Tomcat
 * gives up on a write after the connector's timeout, and the thread holds no events, only its position in the log. A
 * pause after each batch lets events gather, so that 50 watchers wake rarely while hundreds of pods a second are placed.
 */
/** Streams the changes of objects to clients. Thread-safe. */
@Component
public final class Watches {
    /** Of all clients together; more are refused (429). */
    static final int MOST = 1000;
    /** Of one user, or of all service accounts of a namespace, since a right to create those is a right to any number. */
    static final int MOST_OF_USER = 100;

    private static final Logger LOG = LoggerFactory.getLogger(Watches.class);
    private static final int MOST_EVENTS = 500;
    private static final long GATHER_MILLIS = 200;
    private static final long IDLE_MILLIS = 1000;
    private static final long REFRESH_MILLIS = 250;
    private static final Duration BOOKMARK_PERIOD = Duration.ofSeconds(30);
    /** Of a watch that names none; the API server's is 30 to 60 minutes. */
    private static final Duration DEFAULT_TIMEOUT = Duration.ofMinutes(30);

    private static final int LEAST_BYTES = 2000;
    private static final String INITIAL_EVENTS_END = "k8s.io/initial-events-end";

    private final LongSupplier nanoTime;
    /** The threads of the open watches and their users. */
    private final Map<Thread, String> open = new ConcurrentHashMap<>();

    private volatile boolean closed;

    private record Encoding(String resource, long position, String type, Format format, String includeObject) {}

    /** Events that many watchers get alike are encoded once. 2,000 are kept, fewer large ones. */
    private final Cache<Encoding, byte[]> encoded = Caffeine.newBuilder()
            .maximumWeight(CacheSizes.limit(16 << 20, 1))
            .weigher((Encoding encoding, byte[] event) -> LEAST_BYTES + event.length)
            .expireAfterWrite(Duration.ofSeconds(5))
            .build();

    Watches(LongSupplier nanoTime) {
        this.nanoTime = nanoTime;
    }

    /** Ends all watches, so that their clients go to another replica before the server stops. */
    @EventListener(ContextClosedEvent.class)
    public void close() {
        closed = true;
        open.keySet().forEach(Thread::interrupt);
    }

    /**
     * Answers a request with a stream of events.
     *
     * @param user as the API server has authenticated it
     * @param prefix of the keys of the objects: a namespace and a slash, or empty
     */
    public <T> void open(
            HttpServletRequest request,
            HttpServletResponse response,
            Resource<T> resource,
            String prefix,
            Query query,
            Printer printer,
            String user)
            throws IOException {
        Start start = Start.of(query);
        Predicate<T> inNamespace = object -> prefix.isEmpty() || prefix.equals(resource.namespace(object) + "/");
        Predicate<T> selected = inNamespace.and(query.selected(resource));
        if (closed || open.size() >= MOST) {
            throw StatusException.tooManyRequests("too many watches of this replica; try again later");
        }
        String owner = owner(user);
        if (open.values().stream().filter(owner::equals).count() >= MOST_OF_USER) {
            throw StatusException.tooManyRequests("at most " + MOST_OF_USER + " watches of " + owner + "; end one");
        }
        resource.refresh();
        long newest = resource.store().version();
        if (start.initialEvents() && start.version() > newest) {
            throw StatusException.tooNew(start.version(), newest);
        }
        response.setContentType("application/json");
        AsyncContext async = request.startAsync();
        async.setTimeout(0);
        var stream = new Stream<>(
                resource,
                selected,
                printer,
                start,
                response.getOutputStream(),
                nanoTime.getAsLong()
                        + Duration.ofSeconds(query.timeoutSeconds().orElse(DEFAULT_TIMEOUT.toSeconds()))
                                .toNanos());
        var completion = new Completion();
        Thread thread = Thread.ofVirtual().name("watch of " + resource.plural()).unstarted(() -> {
            try {
                stream.run();
                completion.complete(async);
            } catch (InterruptedException e) {
                completion.complete(async);
            } catch (IOException e) {
                // The client is gone. Tomcat calls the listener, but not after each failed write.
                LOG.debug("a watch of {} ended: {}", resource.plural(), String.valueOf(e));
                completion.complete(async);
            } catch (RuntimeException e) {
                if (!completion.done()) { // else the response is no longer usable
                    LOG.error("a watch of {} failed", resource.plural(), e);
                    completion.complete(async);
                }
            } finally {
                open.remove(Thread.currentThread());
            }
        });
        completion.whenClientGone = thread::interrupt;
        async.addListener(completion);
        open.put(thread, owner);
        thread.start();
    }

    /** The user, or for a service account its namespace: {@code system:serviceaccount:NAMESPACE}. */
    public static String owner(String user) {
        return user.startsWith("system:serviceaccount:") ? user.substring(0, user.lastIndexOf(':')) : user;
    }

    /** Completes an asynchronous request once, by the watch or by Tomcat when the client is gone. */
    private static final class Completion implements AsyncListener {
        private final AtomicBoolean done = new AtomicBoolean();
        private volatile Runnable whenClientGone = () -> {};

        boolean done() {
            return done.get();
        }

        void complete(AsyncContext async) {
            if (done.compareAndSet(false, true)) {
                try {
                    async.complete();
                } catch (IllegalStateException e) {
                    LOG.debug("Tomcat has completed the request already: {}", e.getMessage());
                }
            }
        }

        @Override
        public void onError(AsyncEvent event) {
            complete(event.getAsyncContext());
            whenClientGone.run();
        }

        @Override
        public void onTimeout(AsyncEvent event) {
            // There is none.
        }

        @Override
        public void onStartAsync(AsyncEvent event) {
            // A watch starts once.
        }

        @Override
        public void onComplete(AsyncEvent event) {
            done.set(true);
        }
    }

    /**
     * Where a watch begins.
     *
     * @param version from which it continues; 0 for none
     * @param initialEvents whether it begins with all objects
     * @param endMarked whether a bookmark marks the end of those
     */
    private record Start(long version, boolean initialEvents, boolean endMarked, boolean bookmarks) {
        static Start of(Query query) {
            long version = query.version().orElse(0);
            boolean bookmarks = query.flag("allowWatchBookmarks");
            boolean match = query.has("resourceVersionMatch");
            if (!query.has("sendInitialEvents")) {
                if (match) {
                    throw StatusException.badRequest(
                            "resourceVersionMatch: a watch takes it only with sendInitialEvents");
                }
                return new Start(version, version == 0, false, bookmarks);
            }
            if (!query.text("resourceVersionMatch").equals("NotOlderThan")) {
                throw StatusException.badRequest("sendInitialEvents needs resourceVersionMatch=NotOlderThan");
            }
            boolean initial = query.flag("sendInitialEvents");
            if (initial && !bookmarks) {
                throw StatusException.badRequest("sendInitialEvents=true needs allowWatchBookmarks=true");
            }
            return new Start(version, initial, initial, bookmarks);
        }

        boolean fromNow() {
            return !initialEvents && version == 0;
        }
    }

    /** Of one client. */
    private final class Stream<T> {
        private final Resource<T> resource;
        private final Predicate<T> selected;
        private final Printer printer;
        private final Start start;
        private final ServletOutputStream out;
        private final long deadline;
        private long position;
        /** Events up to this version are known to the client. */
        private long known;

        private long bookmarkAt;

        Stream(
                Resource<T> resource,
                Predicate<T> selected,
                Printer printer,
                Start start,
                ServletOutputStream out,
                long deadline) {
            this.resource = resource;
            this.selected = selected;
            this.printer = printer;
            this.start = start;
            this.out = out;
            this.deadline = deadline;
        }

        void run() throws IOException, InterruptedException {
            if (!begin()) {
                return;
            }
            out.flush();
            while (!closed && nanoTime.getAsLong() < deadline) {
                Optional<Batch<T>> batch = resource.store().await(position, MOST_EVENTS, waitMillis());
                if (batch.isEmpty()) {
                    expired(); // the client reads slower than objects change
                    return;
                }
                boolean written = write(batch.get());
                written |= bookmark(batch.get().version());
                if (written) {
                    out.flush();
                    Thread.sleep(GATHER_MILLIS);
                }
                resource.refreshForWatchers();
            }
        }

        private boolean begin() throws IOException {
            WatchCache<T> store = resource.store();
            bookmarkAt = nanoTime.getAsLong() + BOOKMARK_PERIOD.toNanos();
            if (!start.initialEvents() && !start.fromNow()) {
                position = store.oldest();
                known = start.version();
                if (!store.covers(known)) { // after the position: the log may lose its oldest event in between
                    expired();
                    return false;
                }
                return true;
            }
            Snapshot<T> snapshot = store.snapshot();
            position = snapshot.sequence();
            if (start.initialEvents()) {
                for (T object : snapshot.objects()) {
                    if (selected.test(object)) {
                        write("ADDED", printer.one(resource.print(object)));
                    }
                }
                if (start.endMarked()) {
                    writeBookmark(snapshot.version(), Map.of(INITIAL_EVENTS_END, "true"));
                }
            }
            return true;
        }

        private long waitMillis() {
            long left = Duration.ofNanos(deadline - nanoTime.getAsLong()).toMillis();
            return Math.max(1, Math.min(left, resource.isMadeOnDemand() ? REFRESH_MILLIS : IDLE_MILLIS));
        }

        private boolean write(Batch<T> batch) throws IOException {
            boolean written = false;
            long at = batch.next() - batch.events().size();
            for (Event<T> event : batch.events()) {
                if (event.version() > known) {
                    written |= write(at, event);
                }
                at++;
            }
            position = batch.next();
            return written;
        }

        private boolean write(long at, Event<T> event) throws IOException {
            T before = event.before();
            T after = event.after();
            boolean was = before != null && selected.test(before);
            boolean is = after != null && selected.test(after);
            if (!was && !is) {
                return false;
            }
            String type = is ? (was ? "MODIFIED" : "ADDED") : "DELETED";
            byte[] json = encoded.get(
                    new Encoding(resource.plural(), at, type, printer.format(), printer.includeObject()),
                    key -> JsonResponse.json(new WatchEvent(type, printer.one(print(event, before, after)))));
            out.write(json);
            out.write('\n');
            return true;
        }

        private ApiObject print(Event<T> event, @Nullable T before, @Nullable T after) {
            if (after != null) {
                return resource.print(after);
            }
            if (before == null) {
                throw new IllegalStateException("an event of no object");
            }
            return resource.print(before).withVersion(Long.toString(event.shown()));
        }

        /** Tells the client, now and then, from where it can continue after its connection is lost. */
        private boolean bookmark(OptionalLong version) throws IOException {
            if (!start.bookmarks() || version.isEmpty() || nanoTime.getAsLong() < bookmarkAt) {
                return false;
            }
            bookmarkAt = nanoTime.getAsLong() + BOOKMARK_PERIOD.toNanos();
            if (version.getAsLong() >= known) {
                writeBookmark(version.getAsLong(), null);
            }
            return true;
        }

        private void writeBookmark(long version, @Nullable Map<String, String> annotations) throws IOException {
            write("BOOKMARK", printer.bookmark(Long.toString(version), annotations));
        }

        private void expired() throws IOException {
            write(
                    "ERROR",
                    Problems.status(StatusException.expired("too old resource version: " + start.version())
                            .getBody()));
            out.flush();
        }

        private void write(String type, Object object) throws IOException {
            out.write(JsonResponse.json(new WatchEvent(type, object)));
            out.write('\n');
        }
    }

    /** The number of open watches. */
    public int count() {
        return open.size();
    }
}
