package io.aliquot.scheduler.cluster;

import static org.assertj.core.api.Assertions.assertThat;

import com.google.protobuf.CodedOutputStream;
import io.fabric8.kubernetes.api.model.Pod;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;

/** What an API server sends is {@code SlimClientIT}'s. */
class ProtobufReaderTest {
    private interface Fields {
        void write(CodedOutputStream out) throws IOException;
    }

    @Test
    void howLongAPodMayTakeToEndIsReadOfItsSpecAndOfItsDeletion() throws IOException {
        byte[] metadata = message(out -> out.writeInt64(10, 600));
        byte[] spec = message(out -> out.writeInt64(4, 45));
        byte[] pod = message(out -> {
            out.writeByteArray(1, metadata);
            out.writeByteArray(2, spec);
        });
        byte[] kind = message(out -> out.writeString(2, "Pod"));
        byte[] envelope = message(out -> {
            out.writeRawBytes("k8s\0".getBytes(StandardCharsets.US_ASCII));
            out.writeByteArray(1, kind);
            out.writeByteArray(2, pod);
        });

        var read = (Pod) ProtobufReader.read(envelope);

        assertThat(read.getMetadata().getDeletionGracePeriodSeconds()).isEqualTo(600);
        assertThat(read.getSpec().getTerminationGracePeriodSeconds()).isEqualTo(45);
    }

    private static byte[] message(Fields fields) throws IOException {
        var bytes = new ByteArrayOutputStream();
        var out = CodedOutputStream.newInstance(bytes);
        fields.write(out);
        out.flush();
        return bytes.toByteArray();
    }
}
