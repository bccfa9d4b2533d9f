package io.aliquot.scheduler.apiserver.client;

import com.google.protobuf.InvalidProtocolBufferException;
import io.aliquot.scheduler.apiserver.client.ApiServerClient.Answer;
import io.aliquot.scheduler.apiserver.client.ApiServerClient.Stream;
import io.aliquot.scheduler.apiserver.client.ResourceType.Encoding;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.KubernetesResourceList;
import io.fabric8.kubernetes.api.model.Status;
import io.fabric8.kubernetes.api.model.WatchEvent;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.BufferedReader;
import java.io.Closeable;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.InterruptedIOException;
import java.net.HttpURLConnection;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Consumer;

/*
 * Lists and watches of pods and nodes use protobuf. It costs the API server a third and this process a tenth of what
 * JSON costs, and the API server encodes a watch event once for all its protobuf watchers, kube-scheduler among them.
 * Lists come compressed (from 128 KiB on; k8s.io/apiserver, pkg/endpoints/handlers/responsewriters), because decrypting
 * a byte costs more than inflating it.
 */
/**
 * Lists and watches objects. Pods and nodes have only the fields that {@code NodeReader}, {@code PodReader} and
 * {@code NodeAgents} read, so they must not be written back. Thread-safe.
 */
public final class ListWatchClient {
    /** Objects in a page of a list; limits the memory that a list needs. */
    public static final int PAGE = 500;

    private static final Duration TIMEOUT = Duration.ofSeconds(10);
    /** In bytes; etcd limits an object to 1.5 MB. */
    private static final int LONGEST_EVENT = 16 << 20;

    private final ApiServerClient client;
    private final KubernetesSerialization json;

    public ListWatchClient(ApiServerClient client, KubernetesSerialization json) {
        this.client = client;
        this.json = json;
    }

    /**
     * Lists all objects, as they are in etcd now, page by page; fetches the next page while {@code each} handles one.
     * It never uses {@code resourceVersion=0}, which can be older than what this process, or its predecessor, has seen,
     * and for which Kubernetes does not guarantee pages.
     *
     * @return the resource version of the list
     */
    public <T extends HasMetadata> String list(ResourceType<T> type, Consumer<T> each) throws IOException {
        ExecutorService nextPage = Executors.newSingleThreadExecutor(
                task -> new Thread(task, Thread.currentThread().getName() + ", next page"));
        try {
            KubernetesResourceList<T> page = page(type, "");
            while (true) {
                String next = page.getMetadata().getContinue();
                if (next == null || next.isEmpty()) {
                    page.getItems().forEach(each);
                    return page.getMetadata().getResourceVersion();
                }
                Future<KubernetesResourceList<T>> coming = nextPage.submit(() -> page(type, next));
                page.getItems().forEach(each);
                page = awaited(coming);
            }
        } finally {
            nextPage.shutdownNow();
        }
    }

    private static <T> T awaited(Future<T> coming) throws IOException {
        try {
            return coming.get();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while waiting for a page");
        } catch (ExecutionException e) {
            if (e.getCause() instanceof IOException failure) {
                throw failure;
            }
            throw e.getCause() instanceof RuntimeException failure ? failure : new IllegalStateException(e.getCause());
        }
    }

    @SuppressWarnings("unchecked") // the list of this type
    private <T extends HasMetadata> KubernetesResourceList<T> page(ResourceType<T> type, String next)
            throws IOException {
        String query = "limit=" + PAGE
                + (next.isEmpty() ? "" : "&continue=" + URLEncoder.encode(next, StandardCharsets.UTF_8));
        boolean protobuf = type.encoding() == Encoding.PROTOBUF;
        Answer answer = client.get(
                path(type, query), protobuf ? "application/vnd.kubernetes.protobuf" : "application/json", TIMEOUT);
        if (!answer.isSuccessful()) {
            throw refused(answer.code(), answer.body());
        }
        return protobuf
                ? (KubernetesResourceList<T>) ProtobufDecoder.decode(answer.body())
                : json.unmarshal(answer.text(), type.list());
    }

    private static String path(ResourceType<?> type, String query) {
        return type.path() + "?" + query + (type.selector().isEmpty() ? "" : "&" + type.selector());
    }

    private IOException refused(int code, byte[] body) throws IOException {
        String text = new String(body, StandardCharsets.UTF_8);
        if (ProtobufDecoder.isProtobuf(body) && ProtobufDecoder.decode(body) instanceof Status status) {
            text = status.getMessage();
        } else if (text.startsWith("{")) {
            text = json.unmarshal(text, Status.class).getMessage();
        }
        String message = "HTTP " + code + " " + text;
        return code == HttpURLConnection.HTTP_GONE ? new ListAgainException(message) : new IOException(message);
    }

    /**
     * Watches from a resource version on, with bookmarks. The API server ends a watch after 30 to 60 minutes, by chance
     * (k8s.io/apiserver, pkg/endpoints/handlers/get.go).
     *
     * @throws ListAgainException if the API server no longer has this version
     */
    public <T extends HasMetadata> Watch watch(ResourceType<T> type, String version) throws IOException {
        boolean protobuf = type.encoding() == Encoding.PROTOBUF;
        Stream stream = client.stream(
                path(type, "watch=true&allowWatchBookmarks=true&resourceVersion=" + version),
                protobuf ? "application/vnd.kubernetes.protobuf;stream=watch" : "application/json",
                TIMEOUT);
        if (!stream.isSuccessful()) {
            try (stream) {
                throw refused(stream.code(), stream.body().readAllBytes());
            }
        }
        return new Watch(stream, protobuf ? frames(stream) : lines(stream));
    }

    private interface Source {
        Optional<WatchEvent> next() throws IOException;
    }

    /** For one thread, except that any thread may call {@link #close()} at any time. */
    public static final class Watch implements Closeable {
        private final Stream stream;
        private final Source source;

        private Watch(Stream stream, Source source) {
            this.stream = stream;
            this.source = source;
        }

        /**
         * Waits for the next event; empty once the API server has ended the watch.
         *
         * @throws ListAgainException if the event is an error or cannot be read: it would come again
         */
        public Optional<WatchEvent> next() throws IOException {
            Optional<WatchEvent> event;
            try {
                event = source.next();
            } catch (InvalidProtocolBufferException e) {
                throw new ListAgainException(e.toString());
            }
            if (event.isPresent() && event.get().getObject() instanceof Status error) {
                throw new ListAgainException(error.getMessage());
            }
            return event;
        }

        @Override
        public void close() throws IOException {
            stream.close();
        }
    }

    /** Reads frames, each after its length (k8s.io/apimachinery, pkg/util/framer). */
    private static Source frames(Stream stream) {
        var in = new DataInputStream(stream.body());
        return () -> {
            int length;
            try {
                length = in.readInt();
            } catch (EOFException e) {
                return Optional.empty();
            }
            if (length < 0 || length > LONGEST_EVENT) {
                throw new ListAgainException(
                        "expected an event of at most " + LONGEST_EVENT + " bytes, found " + length);
            }
            byte[] frame = in.readNBytes(length);
            if (frame.length < length) {
                throw new EOFException("the connection ended within an event");
            }
            return Optional.of(ProtobufDecoder.decodeEvent(frame));
        };
    }

    private Source lines(Stream stream) {
        var in = new BufferedReader(new InputStreamReader(stream.body(), StandardCharsets.UTF_8));
        return () -> Optional.ofNullable(in.readLine()).map(line -> json.unmarshal(line, WatchEvent.class));
    }

    /** The watch cannot go on from its version: 410 Gone, or an event that is an error or violates the protocol. */
    public static final class ListAgainException extends IOException {
        private static final long serialVersionUID = 1L;

        private ListAgainException(String message) {
            super(message);
        }
    }
}
