package io.aliquot.scheduler.cluster;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.fabric8.kubernetes.client.http.AsyncBody;
import io.fabric8.kubernetes.client.http.BasicBuilder;
import io.fabric8.kubernetes.client.http.HttpRequest;
import io.fabric8.kubernetes.client.http.Interceptor;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.zip.DataFormatException;
import java.util.zip.Inflater;
import org.jspecify.annotations.Nullable;

/**
 * Has the API server answer lists in protobuf, compressed. It compresses from 128 KiB on, and no watch
 * (k8s.io/apiserver, pkg/endpoints/handlers/responsewriters); the client's own HTTP knows no compression. Refusals, which come in protobuf
 * then, too, are passed on as the JSON that the client takes them for.
 */
final class CompressedLists implements Interceptor {
    private static final String TYPES = "application/vnd.kubernetes.protobuf, application/json";

    private final KubernetesSerialization json;

    CompressedLists(KubernetesSerialization json) {
        this.json = json;
    }

    @Override
    public void before(BasicBuilder builder, HttpRequest request, RequestTags tags) {
        String query = request.uri().getQuery();
        String path = request.uri().getPath();
        if (query != null
                && query.contains("limit=")
                && !query.contains("watch=")
                && (path.endsWith("/pods") || path.endsWith("/nodes"))) {
            builder.setHeader("Accept", TYPES);
            builder.setHeader("Accept-Encoding", "gzip");
        }
    }

    @Override
    public AsyncBody.Consumer<List<ByteBuffer>> consumer(
            AsyncBody.Consumer<List<ByteBuffer>> consumer, HttpRequest request) {
        return new Inflating(consumer, json);
    }

    /** Of one answer. What is not compressed is passed on: neither JSON nor protobuf begins as gzip does. */
    private static final class Inflating implements AsyncBody.Consumer<List<ByteBuffer>> {
        private static final int MAGIC = 0x1f;
        /** RFC 1952, 2.3: ten bytes, more only where flags say so, and Go's writer sets none. */
        private static final int HEADER = 10;

        private static final int FLAGS = 3;
        private static final int PIECE = 64 * 1024;

        private final AsyncBody.Consumer<List<ByteBuffer>> consumer;
        private final KubernetesSerialization json;
        private int headerBytes;
        private boolean plain;
        private @Nullable Inflater inflater;
        private boolean ended;

        private Inflating(AsyncBody.Consumer<List<ByteBuffer>> consumer, KubernetesSerialization json) {
            this.consumer = consumer;
            this.json = json;
        }

        @Override
        public void consume(List<ByteBuffer> buffers, AsyncBody body) throws Exception {
            if (plain) {
                consumer.consume(buffers, body);
                return;
            }
            var inflated = new ArrayList<ByteBuffer>();
            for (ByteBuffer buffer : buffers) {
                if (plain) {
                    inflated.add(buffer);
                } else {
                    take(buffer, inflated);
                }
            }
            consumer.consume(inflated, body);
        }

        private void take(ByteBuffer buffer, List<ByteBuffer> inflated) throws IOException {
            while (headerBytes < HEADER && buffer.hasRemaining()) {
                int next = buffer.get(buffer.position()) & 0xff;
                if (headerBytes == 0 && next != MAGIC) {
                    plain = true;
                    inflated.add(refusal(buffer).orElse(buffer));
                    return;
                }
                if (headerBytes == FLAGS && next != 0) {
                    throw new IOException("expected a gzip header without flags, found flags " + next);
                }
                buffer.get();
                headerBytes++;
            }
            if (buffer.hasRemaining()) {
                inflate(buffer, inflated);
            }
        }

        /** As JSON, where these bytes, the first of an answer, are one. A few hundred come all at once. */
        private Optional<ByteBuffer> refusal(ByteBuffer buffer) {
            byte[] bytes = new byte[buffer.remaining()];
            buffer.duplicate().get(bytes);
            return ProtobufReader.refusal(bytes)
                    .map(status -> ByteBuffer.wrap(json.asJson(status).getBytes(UTF_8)));
        }

        private void inflate(ByteBuffer buffer, List<ByteBuffer> inflated) throws IOException {
            if (inflater == null) {
                inflater = new Inflater(true);
            }
            if (ended) {
                return; // the trailer; TLS has checked the bytes
            }
            inflater.setInput(buffer);
            try {
                while (!inflater.finished() && !inflater.needsInput()) {
                    ByteBuffer piece = ByteBuffer.allocate(PIECE);
                    inflater.inflate(piece);
                    if (piece.position() > 0) {
                        inflated.add(piece.flip());
                    }
                }
            } catch (DataFormatException e) {
                throw new IOException("expected gzip", e);
            }
            if (inflater.finished()) {
                ended = true;
                inflater.end();
            }
        }

        @Override
        public <U> @Nullable U unwrap(Class<U> target) {
            return consumer.unwrap(target);
        }
    }
}
