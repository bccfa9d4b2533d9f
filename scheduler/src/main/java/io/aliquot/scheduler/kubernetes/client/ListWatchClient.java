package io.aliquot.scheduler.kubernetes.client;

import io.aliquot.scheduler.kubernetes.client.ApiServerClient.Answer;
import io.aliquot.scheduler.kubernetes.client.ApiServerClient.Stream;
import io.aliquot.scheduler.kubernetes.client.ResourceType.Encoding;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.KubernetesResourceList;
import io.fabric8.kubernetes.api.model.Status;
import io.fabric8.kubernetes.api.model.StatusBuilder;
import io.fabric8.kubernetes.api.model.WatchEvent;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.BufferedReader;
import java.io.Closeable;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.InterruptedIOException;
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
 * Lists and watches of pods and nodes come in protobuf, which costs the server a third and us a tenth of what JSON does,
 * and the server encodes what a watch tells once for all that want it so, kube-scheduler among them. Lists come
 * compressed, too (from 128 KiB on; k8s.io/apiserver, pkg/endpoints/handlers/responsewriters): decrypting a byte costs
 * more than inflating it.
 */
/**
 * Lists and watches of many objects. Of nodes and pods it gives what {@code NodeReader}, {@code PodReader} and
 * {@code NodeAgents} read, and no more; so nothing that it gave may be written back. Thread-safe.
 */
public final class ListWatchClient {
    /** Objects a page of a list, which bounds what is in memory at once. */
    public static final int PAGE = 500;

    private static final Duration PATIENCE = Duration.ofSeconds(10);
    /** An object of etcd has at most 1.5 MB. */
    private static final int LONGEST_EVENT = 16 << 20;

    private final ApiServerClient client;
    private final KubernetesSerialization json;

    public ListWatchClient(ApiServerClient client, KubernetesSerialization json) {
        this.client = client;
        this.json = json;
    }

    /**
     * All there are, as they are in etcd now, page by page, the next one fetched while {@code each} sees to one. Never with
     * {@code resourceVersion=0}, which may be older than what this process, or the one before it, has seen already, and of
     * which Kubernetes promises no pages.
     *
     * @return the version of the list
     * @throws KubernetesClientException where the server refuses
     */
    public <T extends HasMetadata> String list(ResourceType<T> kind, Consumer<T> each) throws IOException {
        ExecutorService ahead = Executors.newSingleThreadExecutor(
                task -> new Thread(task, Thread.currentThread().getName() + ", next page"));
        try {
            KubernetesResourceList<T> page = page(kind, "");
            while (true) {
                String next = page.getMetadata().getContinue();
                if (next == null || next.isEmpty()) {
                    page.getItems().forEach(each);
                    return page.getMetadata().getResourceVersion();
                }
                Future<KubernetesResourceList<T>> coming = ahead.submit(() -> page(kind, next));
                page.getItems().forEach(each);
                page = awaited(coming);
            }
        } finally {
            ahead.shutdownNow();
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

    @SuppressWarnings("unchecked") // the kind's own list
    private <T extends HasMetadata> KubernetesResourceList<T> page(ResourceType<T> kind, String next)
            throws IOException {
        String query = "limit=" + PAGE
                + (next.isEmpty() ? "" : "&continue=" + URLEncoder.encode(next, StandardCharsets.UTF_8));
        boolean protobuf = kind.encoding() == Encoding.PROTOBUF;
        Answer answer = client.get(
                path(kind, query), protobuf ? "application/vnd.kubernetes.protobuf" : "application/json", PATIENCE);
        if (!answer.isSuccessful()) {
            throw refused(answer.code(), answer.body());
        }
        return protobuf
                ? (KubernetesResourceList<T>) ProtobufDecoder.decode(answer.body())
                : json.unmarshal(answer.text(), kind.list());
    }

    private static String path(ResourceType<?> kind, String query) {
        return kind.path() + "?" + query + (kind.selector().isEmpty() ? "" : "&" + kind.selector());
    }

    private KubernetesClientException refused(int code, byte[] body) throws IOException {
        String text = new String(body, StandardCharsets.UTF_8);
        if (ProtobufDecoder.isProtobuf(body) && ProtobufDecoder.decode(body) instanceof Status status) {
            return new KubernetesClientException(status);
        }
        return new KubernetesClientException(
                text.startsWith("{")
                        ? json.unmarshal(text, Status.class)
                        : new StatusBuilder()
                                .withCode(code)
                                .withMessage("HTTP " + code + " " + text)
                                .build());
    }

    /**
     * What happens from a version on, bookmarks included.
     *
     * @throws KubernetesClientException where the server refuses
     */
    public <T extends HasMetadata> Watch watch(ResourceType<T> kind, String version) throws IOException {
        boolean protobuf = kind.encoding() == Encoding.PROTOBUF;
        Stream stream = client.stream(
                path(kind, "watch=true&allowWatchBookmarks=true&resourceVersion=" + version),
                protobuf ? "application/vnd.kubernetes.protobuf;stream=watch" : "application/json",
                PATIENCE);
        if (!stream.isSuccessful()) {
            try (stream) {
                throw refused(stream.code(), stream.body().readAllBytes());
            }
        }
        return new Watch(stream, protobuf ? frames(stream) : lines(stream));
    }

    private interface Source {
        /** Empty at the end. */
        Optional<WatchEvent> next() throws IOException;
    }

    /** Used by one thread, but for {@link #close()}, which ends it at any time. */
    public static final class Watch implements Closeable {
        private final Stream stream;
        private final Source source;

        private Watch(Stream stream, Source source) {
            this.stream = stream;
            this.source = source;
        }

        /** Waits for it; empty once the server has ended the watch. */
        public Optional<WatchEvent> next() throws IOException {
            return source.next();
        }

        @Override
        public void close() throws IOException {
            stream.close();
        }
    }

    /** Each with its length before it (k8s.io/apimachinery, pkg/util/framer). */
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
                throw new MalformedException(
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

    /** What came is not what the protocol says. */
    public static final class MalformedException extends IOException {
        private static final long serialVersionUID = 1L;

        private MalformedException(String message) {
            super(message);
        }
    }
}
