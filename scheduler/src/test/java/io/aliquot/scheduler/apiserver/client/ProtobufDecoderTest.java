package io.aliquot.scheduler.apiserver.client;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.tuple;

import com.google.protobuf.CodedOutputStream;
import io.aliquot.scheduler.apiserver.reader.PodReader;
import io.aliquot.scheduler.placement.PodRuntime;
import io.aliquot.scheduler.placement.PodScopes;
import io.fabric8.kubernetes.api.model.KubernetesResource;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeRuntimeHandler;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodSchedulingGate;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;

/** {@code ListWatchClientIT} decodes the objects of a real API server. */
class ProtobufDecoderTest {
    private interface Fields {
        void write(CodedOutputStream out) throws IOException;
    }

    @Test
    void gracePeriodsOfSpecAndDeletionAreDecoded() throws IOException {
        byte[] metadata = message(out -> out.writeInt64(10, 600));
        byte[] spec = message(out -> out.writeInt64(4, 45));

        Pod read = read(out -> {
            out.writeByteArray(1, metadata);
            out.writeByteArray(2, spec);
        });

        assertThat(read.getMetadata().getDeletionGracePeriodSeconds()).isEqualTo(600);
        assertThat(read.getSpec().getTerminationGracePeriodSeconds()).isEqualTo(45);
    }

    @Test
    void theReasonOfTheSchedulingConditionIsDecoded() throws IOException {
        assertThat(PodReader.unschedulable(withoutNode("Unschedulable"), "aliquot-scheduler"))
                .isPresent();
        assertThat(PodReader.unschedulable(withoutNode("SchedulingGated"), "aliquot-scheduler"))
                .isEmpty();
    }

    /** PodSpec.schedulingGates in k8s.io/api core/v1/generated.proto. */
    @Test
    void schedulingGatesAreRead() throws IOException {
        byte[] spec = message(out -> out.writeByteArray(38, message(gate -> gate.writeString(1, "a.io/x"))));

        Pod read = read(out -> out.writeByteArray(2, spec));

        assertThat(read.getSpec().getSchedulingGates())
                .extracting(PodSchedulingGate::getName)
                .containsExactly("a.io/x");
    }

    /** PodSpec.activeDeadlineSeconds and PodSpec.priorityClassName in k8s.io/api core/v1/generated.proto. */
    @Test
    void whatTheScopesOfQuotasDependOnIsRead() throws IOException {
        byte[] spec = message(out -> {
            out.writeInt64(5, 600);
            out.writeString(24, "high");
        });

        Pod read = read(out -> out.writeByteArray(2, spec));

        assertThat(PodReader.gpuRequest(read).scopes()).isEqualTo(new PodScopes("high", true));
    }

    /** PodSpec.overhead and PodSpec.resources in k8s.io/api core/v1/generated.proto. */
    @Test
    void overheadAndPodLevelResourcesAreRead() throws IOException {
        byte[] quantity = message(out -> out.writeString(1, "250m"));
        byte[] cpu = message(out -> {
            out.writeString(1, "cpu");
            out.writeByteArray(2, quantity);
        });
        byte[] resources = message(out -> out.writeByteArray(2, cpu));
        byte[] spec = message(out -> {
            out.writeByteArray(32, cpu);
            out.writeByteArray(40, resources);
        });

        Pod read = read(out -> out.writeByteArray(2, spec));

        assertThat(PodReader.requests(read).cpuMillis()).isEqualTo(500);
    }

    /** PodSpec.runtimeClassName and PodSpec.hostUsers in k8s.io/api core/v1/generated.proto. */
    @Test
    void whatAPodAsksOfItsRuntimeIsRead() throws IOException {
        byte[] spec = message(out -> {
            out.writeString(29, "nvidia");
            out.writeBool(37, false);
        });

        assertThat(PodReader.gpuRequest(read(out -> out.writeByteArray(2, spec)))
                        .runtime())
                .isEqualTo(new PodRuntime("nvidia", true));
        assertThat(PodReader.gpuRequest(read(out -> out.writeByteArray(2, new byte[0])))
                        .runtime())
                .isEqualTo(PodRuntime.DEFAULT);
    }

    /** NodeStatus.runtimeHandlers in k8s.io/api core/v1/generated.proto. */
    @Test
    void theHandlersOfANodesRuntimeAreRead() throws IOException {
        byte[] withUserNamespaces = message(handler -> {
            handler.writeString(1, "nvidia");
            handler.writeByteArray(2, message(features -> {
                features.writeBool(1, true);
                features.writeBool(2, true);
            }));
        });
        byte[] defaultHandler = message(handler -> handler.writeString(1, ""));
        byte[] status = message(out -> {
            out.writeByteArray(12, withUserNamespaces);
            out.writeByteArray(12, defaultHandler);
        });

        Node read = (Node) decode("Node", out -> out.writeByteArray(3, status));

        assertThat(read.getStatus().getRuntimeHandlers())
                .extracting(
                        NodeRuntimeHandler::getName,
                        handler -> handler.getFeatures().getUserNamespaces())
                .containsExactly(tuple("nvidia", true), tuple("", false));
    }

    /** PodStatus.containerStatuses and ContainerStatus.resources in k8s.io/api core/v1/generated.proto. */
    @Test
    void theResourcesOfContainerStatusesAreRead() throws IOException {
        byte[] cpu = cpu("250m");
        byte[] more = cpu("750m");
        byte[] container = message(out -> {
            out.writeString(1, "main");
            out.writeByteArray(8, message(requests -> requests.writeByteArray(2, cpu)));
        });
        byte[] status = message(out -> {
            out.writeString(1, "main");
            out.writeByteArray(10, more);
            out.writeByteArray(11, message(requests -> requests.writeByteArray(2, cpu)));
        });

        Pod read = read(out -> {
            out.writeByteArray(2, message(spec -> spec.writeByteArray(2, container)));
            out.writeByteArray(3, message(podStatus -> podStatus.writeByteArray(8, status)));
        });

        assertThat(PodReader.requests(read).cpuMillis()).isEqualTo(750);
    }

    /** ContainerStatus.state and PodSpec.restartPolicy in k8s.io/api core/v1/generated.proto; exit code 0 is left out. */
    @Test
    void theEndsOfContainersAreRead() throws IOException {
        byte[] running = message(status -> {
            status.writeString(1, "side");
            status.writeByteArray(2, message(state -> state.writeByteArray(2, new byte[0])));
        });
        byte[] ended = message(status -> {
            status.writeString(1, "init");
            status.writeByteArray(2, message(state -> state.writeByteArray(3, new byte[0])));
        });
        byte[] failed = message(status -> {
            status.writeString(1, "main");
            status.writeByteArray(2, message(state -> state.writeByteArray(3, message(end -> end.writeInt32(1, 7)))));
        });

        Pod read = read(out -> {
            out.writeByteArray(2, message(spec -> spec.writeString(3, "Never")));
            out.writeByteArray(3, message(podStatus -> {
                podStatus.writeByteArray(10, running);
                podStatus.writeByteArray(10, ended);
                podStatus.writeByteArray(8, failed);
            }));
        });

        assertThat(read.getSpec().getRestartPolicy()).isEqualTo("Never");
        assertThat(read.getStatus().getInitContainerStatuses()).singleElement().satisfies(status -> {
            assertThat(status.getName()).isEqualTo("init");
            assertThat(status.getState().getTerminated().getExitCode()).isZero();
            assertThat(status.getResources())
                    .as("requests count as without a status")
                    .isNull();
        });
        assertThat(read.getStatus()
                        .getContainerStatuses()
                        .getFirst()
                        .getState()
                        .getTerminated()
                        .getExitCode())
                .isEqualTo(7);
    }

    private static byte[] cpu(String amount) throws IOException {
        byte[] quantity = message(out -> out.writeString(1, amount));
        return message(out -> {
            out.writeString(1, "cpu");
            out.writeByteArray(2, quantity);
        });
    }

    private static Pod withoutNode(String reason) throws IOException {
        byte[] quantity = message(out -> out.writeString(1, "3k"));
        byte[] limit = message(out -> {
            out.writeString(1, "nvidia.com/gpumem");
            out.writeByteArray(2, quantity);
        });
        byte[] resources = message(out -> out.writeByteArray(1, limit));
        byte[] container = message(out -> {
            out.writeString(1, "main");
            out.writeByteArray(8, resources);
        });
        byte[] spec = message(out -> {
            out.writeByteArray(2, container);
            out.writeString(19, "aliquot-scheduler");
        });
        byte[] condition = message(out -> {
            out.writeString(1, "PodScheduled");
            out.writeString(2, "False");
            out.writeString(5, reason);
            out.writeString(6, "0/3 nodes are available: 3 Insufficient nvidia.com/gpumem.");
        });
        byte[] status = message(out -> {
            out.writeString(1, "Pending");
            out.writeByteArray(2, condition);
        });
        byte[] metadata = message(out -> out.writeString(1, "p"));
        return read(out -> {
            out.writeByteArray(1, metadata);
            out.writeByteArray(2, spec);
            out.writeByteArray(3, status);
        });
    }

    private static Pod read(Fields pod) throws IOException {
        return (Pod) decode("Pod", pod);
    }

    /** Sent as an API server sends it. */
    private static KubernetesResource decode(String name, Fields object) throws IOException {
        byte[] bytes = message(object);
        byte[] kind = message(out -> out.writeString(2, name));
        byte[] envelope = message(out -> {
            out.writeRawBytes("k8s\0".getBytes(StandardCharsets.US_ASCII));
            out.writeByteArray(1, kind);
            out.writeByteArray(2, bytes);
        });
        return ProtobufDecoder.decode(envelope);
    }

    private static byte[] message(Fields fields) throws IOException {
        var bytes = new ByteArrayOutputStream();
        var out = CodedOutputStream.newInstance(bytes);
        fields.write(out);
        out.flush();
        return bytes.toByteArray();
    }
}
