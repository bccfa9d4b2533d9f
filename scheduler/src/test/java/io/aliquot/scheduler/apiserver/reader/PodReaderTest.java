package io.aliquot.scheduler.apiserver.reader;

import static io.aliquot.scheduler.placement.Gpus.uuid;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.pods.MemoryRequest.Mebibytes;
import io.aliquot.api.pods.MemoryRequest.WholeCard;
import io.aliquot.scheduler.ledger.ContainerShare;
import io.aliquot.scheduler.ledger.ForeignPod.ForeignVgpu;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.fabric8.kubernetes.api.model.ContainerStatus;
import io.fabric8.kubernetes.api.model.ContainerStatusBuilder;
import io.fabric8.kubernetes.api.model.EphemeralContainerBuilder;
import io.fabric8.kubernetes.api.model.ManagedFieldsEntry;
import io.fabric8.kubernetes.api.model.ManagedFieldsEntryBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodStatusBuilder;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.api.model.ResourceRequirementsBuilder;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class PodReaderTest {
    private static final String SHARE = "aliquot.io/vgpu.main: \"" + uuid(1, 0) + " memory=250Mi cores=10\"";

    @Test
    void aPodHoldsTheMaximumOfWhatItsContainersHoldAtOnce() {
        PodReader.Reading reading = PodReader.bound(pod(
                "aliquot.io/vgpu.warm: \"" + uuid(1, 0) + " memory=600Mi cores=0\"",
                "aliquot.io/vgpu.side: \"" + uuid(1, 0) + " memory=100Mi cores=5\"",
                "aliquot.io/vgpu.main: \"" + uuid(1, 0) + " memory=250Mi cores=10\\n" + uuid(1, 1)
                        + " memory=250Mi cores=10\\n\""));
        assertThat(reading.problems()).isEmpty();
        assertThat(reading.pod().perGpu())
                .isEqualTo(Map.of(
                        uuid(1, 0), new GpuAmount(600, 15, 2, false), uuid(1, 1), new GpuAmount(250, 10, 1, false)));
        assertThat(reading.pod().hostRequests()).isEqualTo(new HostResources(8000, 1 << 30));
    }

    /** Regression: an init container that had ended counted beside its pod's other containers, until the pod ended. */
    @ParameterizedTest
    @CsvSource({
        "Always,    0, warm",
        "Always,    1, ''",
        "OnFailure, 0, warm main",
        "OnFailure, 1, ''",
        "Never,     0, warm main",
        "Never,     1, main",
    })
    void aContainerHasEndedIfItsPodDoesNotStartItAgain(String restartPolicy, int exitCode, String ended) {
        Pod pod = pod(
                "aliquot.io/vgpu.warm: \"" + uuid(1, 0) + " memory=600Mi cores=0\"",
                "aliquot.io/vgpu.side: \"" + uuid(1, 0) + " memory=100Mi cores=5\"",
                SHARE);
        assertThat(PodReader.bound(pod).pod().shares()).noneMatch(ContainerShare::ended);
        pod.getSpec().setRestartPolicy(restartPolicy);
        pod.setStatus(new PodStatusBuilder()
                .withInitContainerStatuses(status("warm", exitCode), status("side", exitCode))
                .withContainerStatuses(status("main", exitCode))
                .build());

        assertThat(PodReader.bound(pod).pod().shares().stream()
                        .filter(ContainerShare::ended)
                        .map(ContainerShare::container)
                        .collect(Collectors.joining(" ")))
                .isEqualTo(ended);
        assertThat(PodReader.bound(pod).pod().perGpu())
                .as("the pod holds the same until it ends")
                .isEqualTo(Map.of(uuid(1, 0), new GpuAmount(600, 15, 2, false)));
    }

    private static ContainerStatus status(String name, int exitCode) {
        return new ContainerStatusBuilder()
                .withName(name)
                .withNewState()
                .withNewTerminated()
                .withExitCode(exitCode)
                .endTerminated()
                .endState()
                .build();
    }

    @Test
    void aPodOfHamiHoldsWhatItsRecordAndItsLimitsSay() {
        Pod pod =
                hami(uuid(1, 0) + ",NVIDIA,100,5:;" + uuid(1, 0) + ",NVIDIA,200,10:" + uuid(1, 1) + ",NVIDIA,300,0:;");

        assertThat(PodReader.foreign(pod).orElseThrow().vgpus())
                .containsExactly(
                        new ForeignVgpu(uuid(1, 0), new GpuAmount(100, 5, 1, false), new WholeCard()),
                        new ForeignVgpu(uuid(1, 0), new GpuAmount(200, 20, 1, false), new Mebibytes(250)),
                        new ForeignVgpu(uuid(1, 1), new GpuAmount(300, 20, 1, false), new Mebibytes(250)));
        assertThat(PodReader.bound(pod).pod().shares()).isEmpty();
    }

    /** Otherwise its owner could rewrite it so that a container's GPU is not counted. */
    @Test
    void aRecordOfHamiWithOtherContainersOrGpusThanTheLimitsIsUnreadable() {
        String one = uuid(1, 0) + ",NVIDIA,100,5:";
        for (String record : List.of(one + one + ";", one + ";" + one + ";", one + ";" + one + one + ";" + one + ";")) {
            assertThatThrownBy(() -> PodReader.foreign(hami(record)))
                    .as(record)
                    .isInstanceOf(FormatException.class)
                    .hasMessageContaining("by the limits of nvidia.com/gpu")
                    .hasMessageContaining("wholly held");
        }
    }

    /** A pod of HAMi with this record; its first container has a card of its own and its second one two vGPUs. */
    private static Pod hami(String record) {
        Pod pod = pod("hami.io/vgpu-devices-allocated: \"" + record + "\"");
        pod.getSpec().getInitContainers().clear();
        Map<String, Quantity> card = Map.of("nvidia.com/gpu", new Quantity("1"));
        Map<String, Quantity> shares = Map.of(
                "nvidia.com/gpu", new Quantity("2"),
                "nvidia.com/gpumem", new Quantity("250"),
                "nvidia.com/gpucores", new Quantity("20"));
        pod.getSpec().getContainers().get(0).getResources().setLimits(card);
        pod.getSpec()
                .getContainers()
                .get(1)
                .setResources(
                        new ResourceRequirementsBuilder().withLimits(shares).build());
        return pod;
    }

    @Test
    void aPodOfAliquotIsNeverHamisWhateverItsAnnotationsSay() {
        assertThat(PodReader.foreign(pod(
                        "aliquot.io/vgpu.main: \"" + uuid(1, 0) + " memory=250Mi cores=10\"",
                        "hami.io/vgpu-devices-allocated: \"" + uuid(1, 0) + ",NVIDIA,100,5:;\"")))
                .isEmpty();
        assertThat(PodReader.foreign(pod())).isEmpty();
    }

    @Test
    void anUnreadableRecordOfHamiSaysThatItsGpusCountAsWhollyHeld() {
        assertThatThrownBy(() -> PodReader.foreign(pod("hami.io/vgpu-devices-allocated: \"MIG-1,NVIDIA,100,5:;\"")))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining("annotation hami.io/vgpu-devices-allocated: expected a GPU's UUID")
                .hasMessageContaining("wholly held");
    }

    @Test
    void anUnreadableAnnotationKeepsItsReadableLinesAndIsAProblem() {
        PodReader.Reading reading = PodReader.bound(pod(
                "aliquot.io/vgpu.main: \"" + uuid(1, 0) + " memory=250Mi cores=10\\nGPU-1 memory=1Mi cores=0\\n\""));
        assertThat(reading.pod().perGpu()).isEqualTo(Map.of(uuid(1, 0), new GpuAmount(250, 10, 1, false)));
        assertThat(reading.problems()).hasSize(1);
        assertThat(reading.problems().get(0)).startsWith("aliquot.io/vgpu.main: expected a GPU's UUID");
    }

    @Test
    void aPodsRequestHasEachContainersKind() {
        var ask = PodReader.gpuRequest(pod());
        assertThat(ask.containers())
                .extracting(container -> container.name() + " " + container.kind())
                .containsExactly(
                        "warm " + ContainerKind.INIT, "side " + ContainerKind.SIDECAR, "main " + ContainerKind.APP);
        assertThat(ask.mostVgpus()).isEqualTo(2);
    }

    /** As k8s.io/component-helpers does. */
    @Test
    void overheadAndPodLevelRequestsCount() {
        Pod pod = pod();
        pod.getSpec().setOverhead(Map.of("cpu", new Quantity("250m"), "memory", new Quantity("1Mi")));
        pod.getSpec()
                .setResources(new ResourceRequirementsBuilder()
                        .addToRequests("cpu", new Quantity("3"))
                        .build());
        assertThat(PodReader.requests(pod)).isEqualTo(new HostResources(3250, (1 << 30) + (1 << 20)));
    }

    /** KEP-2837. */
    @Test
    void podLevelRequestsReplaceThoseOfTheContainers() {
        Pod pod = pod();
        pod.getSpec()
                .setResources(new ResourceRequirementsBuilder()
                        .addToRequests("cpu", new Quantity("3"))
                        .addToRequests("memory", new Quantity("2Gi"))
                        .build());
        assertThat(PodReader.requests(pod)).isEqualTo(new HostResources(3000, 2L << 30));
    }

    /** KEP-1287. Regression: only the spec counted, so victims were evicted for CPU that the node did not have. */
    @Test
    void duringAResizeTheGreatestOfRequestedAllocatedAndActualAmountsCounts() {
        assertThat(PodReader.requests(resizing("1", "3", "1", ""))).isEqualTo(new HostResources(8000, 1 << 30));
        assertThat(PodReader.requests(resizing("12", "3", "1", ""))).isEqualTo(new HostResources(12_500, 1 << 30));
        assertThat(PodReader.requests(resizing("1", "9", "1", ""))).isEqualTo(new HostResources(9500, 1 << 30));
        assertThat(PodReader.requests(resizing("1", "3", "10", ""))).isEqualTo(new HostResources(10_500, 1 << 30));
        assertThat(PodReader.requests(resizing("12", "3", "10", "Deferred")).cpuMillis())
                .isEqualTo(12_500);
        // The spec of an infeasible resize does not count, so neither does the memory that no status has.
        assertThat(PodReader.requests(resizing("12", "3", "10", "Infeasible"))).isEqualTo(new HostResources(10_500, 0));
    }

    @Test
    void podLevelRequestsFollowAResizeToo() {
        Pod pod = resizing("1", "1", "1", "");
        pod.getSpec()
                .setResources(new ResourceRequirementsBuilder()
                        .addToRequests("cpu", new Quantity("3"))
                        .build());
        pod.getStatus()
                .setResources(new ResourceRequirementsBuilder()
                        .addToRequests("cpu", new Quantity("5"))
                        .build());
        assertThat(PodReader.requests(pod).cpuMillis()).isEqualTo(5000);
    }

    /** A pod whose container main has these amounts of CPU, and this reason for a resize that is pending. */
    private static Pod resizing(String requested, String allocated, String actual, String pending) {
        Pod pod = pod();
        pod.getSpec().getContainers().get(0).getResources().getRequests().put("cpu", new Quantity(requested));
        pod.setStatus(new PodStatusBuilder()
                .addNewContainerStatus()
                .withName("main")
                .withAllocatedResources(Map.of("cpu", new Quantity(allocated)))
                .withResources(new ResourceRequirementsBuilder()
                        .addToRequests("cpu", new Quantity(actual))
                        .build())
                .endContainerStatus()
                .addNewCondition()
                .withType("PodResizePending")
                .withStatus("True")
                .withReason(pending)
                .endCondition()
                .build());
        return pod;
    }

    /** KEP-753. */
    @Test
    void anInitContainerRunsBesideTheSidecarsThatStartedBeforeIt() {
        Pod pod = pod();
        pod.getSpec().setInitContainers(pod.getSpec().getInitContainers().reversed());
        assertThat(PodReader.requests(pod)).isEqualTo(new HostResources(8500, 1 << 30));
    }

    @Test
    void theUnschedulableMessageIsReadFromTheCondition() {
        assertThat(PodReader.unschedulableMessage(pod())).isEmpty();
        for (String status : List.of("True", "False")) {
            Pod tried = pod();
            tried.setStatus(new PodStatusBuilder()
                    .addNewCondition()
                    .withType("PodScheduled")
                    .withStatus(status)
                    .withMessage(" 0/3 nodes are available: 3 Insufficient cpu. ")
                    .endCondition()
                    .build());
            assertThat(PodReader.unschedulableMessage(tried))
                    .isEqualTo(status.equals("True") ? "" : "0/3 nodes are available: 3 Insufficient cpu.");
        }
    }

    @Test
    void onlyUnschedulableGpuPodsHaveAPendingRequest() {
        assertThat(refused(pod())).isEmpty();
        assertThat(refused(tried(pod(), "False", "Unschedulable"))).contains(PodReader.gpuRequest(pod()));
        assertThat(refused(tried(pod(), "False", "SchedulingGated"))).isEmpty();
        assertThat(refused(tried(pod(), "False", "SchedulerError"))).isEmpty();
        assertThat(refused(tried(pod(), "True", null))).isEmpty();
        Pod others = tried(pod(), "False", "Unschedulable");
        others.getSpec().setSchedulerName("default-scheduler");
        assertThat(refused(others)).isEmpty();
        Pod nonsense = pod();
        nonsense.getSpec().getContainers().get(0).getResources().getLimits().put("aliquot.io/vgpu", new Quantity("0"));
        assertThat(refused(tried(nonsense, "False", "Unschedulable"))).isEmpty();
        Pod plain = pod();
        plain.getSpec().getInitContainers().clear();
        plain.getSpec().getContainers().remove(0);
        assertThat(refused(tried(plain, "False", "Unschedulable"))).isEmpty();
    }

    private static Optional<PodGpuRequest> refused(Pod pod) {
        return PodReader.unschedulable(pod, "aliquot-scheduler");
    }

    private static Pod tried(Pod pod, String status, @Nullable String reason) {
        pod.setStatus(new PodStatusBuilder()
                .addNewCondition()
                .withType("PodScheduled")
                .withStatus(status)
                .withReason(reason)
                .endCondition()
                .build());
        return pod;
    }

    @Test
    void aPodEndsByItsPhaseAndNotByItsDeletion() {
        assertThat(PodReader.ended(pod())).isFalse();
        Pod deleted = pod();
        deleted.getMetadata().setDeletionTimestamp("2026-01-01T00:00:00Z");
        assertThat(PodReader.ended(deleted)).isFalse();
        for (String phase : List.of("Failed", "Succeeded")) {
            Pod ended = pod();
            ended.getStatus().setPhase(phase);
            assertThat(PodReader.ended(ended)).as(phase).isTrue();
        }
    }

    @Test
    void aPodWithSharesThatItsKubeletRejectedSaysWhen() {
        assertThat(PodReader.rejectedAt(ended("Failed", "Pod was rejected: no devices", SHARE)))
                .contains(Instant.parse("2026-01-01T00:00:20Z"));
        assertThat(PodReader.rejectedAt(ended("Failed", "The node was low on resource: memory", SHARE)))
                .as("evicted")
                .isEmpty();
        assertThat(PodReader.rejectedAt(ended("Failed", null, SHARE)))
                .as("failed by itself")
                .isEmpty();
        assertThat(PodReader.rejectedAt(ended("Running", "Pod was rejected: no devices", SHARE)))
                .isEmpty();
        assertThat(PodReader.rejectedAt(ended("Failed", "Pod was rejected: no devices")))
                .as("without a share")
                .isEmpty();
    }

    private static Pod ended(String phase, @Nullable String message, String... annotations) {
        Pod pod = pod(annotations);
        pod.setStatus(
                new PodStatusBuilder().withPhase(phase).withMessage(message).build());
        pod.getMetadata()
                .setManagedFields(List.of(
                        write("status", "2026-01-01T00:00:10Z"),
                        write("status", "2026-01-01T00:00:20Z"),
                        write(null, "2026-01-01T00:00:30Z")));
        return pod;
    }

    private static ManagedFieldsEntry write(@Nullable String subresource, String time) {
        return new ManagedFieldsEntryBuilder()
                .withSubresource(subresource)
                .withTime(time)
                .build();
    }

    @Test
    void theGracePeriodIsTheLongerOneOfSpecAndDeletion() {
        assertThat(grace(null, null)).isEqualTo(Duration.ofSeconds(30));
        assertThat(grace(60L, null)).isEqualTo(Duration.ofMinutes(1));
        assertThat(grace(60L, 600L)).isEqualTo(Duration.ofMinutes(10));
        assertThat(grace(60L, 0L)).isEqualTo(Duration.ofMinutes(1));
        assertThat(grace(Long.MAX_VALUE, 0L)).isEqualTo(Duration.ofDays(365));
        assertThat(grace(60L, Long.MAX_VALUE)).isEqualTo(Duration.ofDays(365));
    }

    private static Duration grace(@Nullable Long itsOwn, @Nullable Long given) {
        Pod pod = pod();
        pod.getSpec().setTerminationGracePeriodSeconds(itsOwn);
        pod.getMetadata().setDeletionGracePeriodSeconds(given);
        return PodReader.bound(pod).pod().grace();
    }

    @Test
    void anEphemeralContainerHasNoRequestAndHoldsNothing() {
        String main = "aliquot.io/vgpu.main: \"" + uuid(1, 0) + " memory=250Mi cores=10\"";
        Pod pod = pod(main);
        pod.getSpec()
                .setEphemeralContainers(List.of(new EphemeralContainerBuilder()
                        .withName("debug")
                        .withTargetContainerName("main")
                        .build()));
        assertThat(PodReader.bound(pod)).isEqualTo(PodReader.bound(pod(main)));
        assertThat(PodReader.gpuRequest(pod)).isEqualTo(PodReader.gpuRequest(pod(main)));
    }

    private static Pod pod(String... annotations) {
        String yaml = """
                apiVersion: v1
                kind: Pod
                metadata:
                  name: p
                  namespace: default
                  uid: u
                  annotations: {%s}
                spec:
                  nodeName: n1
                  schedulerName: aliquot-scheduler
                  initContainers:
                  - name: warm
                    resources: {limits: {nvidia.com/gpumem: 600}, requests: {cpu: 8}}
                  - name: side
                    restartPolicy: Always
                    resources: {limits: {nvidia.com/gpumem: 100, nvidia.com/gpucores: 5}, requests: {cpu: 500m}}
                  containers:
                  - name: main
                    resources: {limits: {aliquot.io/vgpu: 2, nvidia.com/gpumem: 250}, requests: {cpu: 1, memory: 1Gi}}
                  - name: plain
                status: {phase: Running}
                """;
        return Serialization.unmarshal(yaml.formatted(String.join(", ", annotations)), Pod.class);
    }
}
