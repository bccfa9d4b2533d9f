package io.aliquot.scheduler.admission;

import static io.aliquot.scheduler.admission.Pods.container;
import static io.aliquot.scheduler.admission.Pods.containerRequesting;
import static io.aliquot.scheduler.admission.Pods.gpuPod;
import static io.aliquot.scheduler.admission.Pods.mutated;
import static io.aliquot.scheduler.admission.Pods.parse;
import static io.aliquot.scheduler.admission.Pods.requesting;
import static io.aliquot.scheduler.admission.Pods.spec;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.CoreRules;
import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.api.pods.PodDefaults;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

class GpuAdmissionTest {
    private static final GpuAdmission ADMISSION =
            new GpuAdmission("", name -> Optional.of("nvidia"), false, Compatibility.NONE, () -> PodDefaults.NONE);
    private static final String VOID = "{\"name\": \"NVIDIA_VISIBLE_DEVICES\", \"value\": \"void\"}";
    private static final String ALLOCATED = """
        {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {
          "apiVersion": "v1", "fieldPath": "metadata.annotations['aliquot.io/visible-devices.main']"}}}
        """;

    @Test
    void aGpuContainerReadsItsDevicesAndLimitsFromAnnotations() {
        ObjectNode pod = mutated(ADMISSION, gpuPod());

        assertThat(spec(pod).get("schedulerName").stringValue()).isEqualTo("aliquot-scheduler");
        assertThat(container(pod, 0).get("env")).isEqualTo(list(ALLOCATED));
        assertThat(spec(pod).at("/volumes/1")).isEqualTo(parse("""
            {"name": "aliquot-vgpu-main", "downwardAPI": {"defaultMode": 292, "items": [
              {"path": "vgpu", "fieldRef": {
                "apiVersion": "v1", "fieldPath": "metadata.annotations['aliquot.io/vgpu.main']"}}]}}
            """));
        assertThat(container(pod, 0).at("/volumeMounts/1")).isEqualTo(parse("""
            {"name": "aliquot-vgpu-main", "readOnly": true, "mountPath": "/etc/aliquot"}
            """));
    }

    @Test
    void changesNothingElseInThePod() {
        ObjectNode pod = mutated(ADMISSION, gpuPod());
        container(pod, 0).remove("env");
        pod.withArray("/spec/volumes").remove(1);
        pod.withArray("/spec/containers/0/volumeMounts").remove(1);
        spec(pod).put("schedulerName", "default-scheduler").remove("tolerations");

        assertThat(pod).isEqualTo(gpuPod());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{\"nvidia.com/gpumem\": \"3k\"}",
                "{\"nvidia.com/gpumem-percentage\": \"50\"}",
                "{\"nvidia.com/gpucores\": \"30\"}"
            })
    void addsOneVgpuToLimitsAndRequestsIfOnlyMemoryOrCoresAreRequested(String limits) {
        ObjectNode pod = mutated(ADMISSION, requesting(limits));

        assertThat(container(pod, 0).at("/resources/limits/aliquot.io~1vgpu").stringValue())
                .isEqualTo("1");
        assertThat(container(pod, 0).at("/resources/requests/aliquot.io~1vgpu").stringValue())
                .isEqualTo("1");
    }

    @Test
    void limitsThatALimitRangeAddedMakeNoPlainContainerAGpuContainer() {
        ObjectNode pod = defaulted("{\"cpu\": \"1\", \"nvidia.com/gpumem\": \"8k\"}");

        ObjectNode plain = mutated(ADMISSION, pod);

        assertThat(limits(plain)).isEqualTo(parse("{\"cpu\": \"1\", \"nvidia.com/gpumem\": \"0\"}"));
        assertThat(container(plain, 0)
                        .at("/resources/requests/nvidia.com~1gpumem")
                        .stringValue())
                .isEqualTo("0");
        assertThat(spec(plain).get("schedulerName").stringValue()).isEqualTo("default-scheduler");
        assertThat(mutated(ADMISSION, plain)).as("once more").isEqualTo(plain);
    }

    @Test
    void aGpuContainerKeepsLimitsThatALimitRangeAddedUnlessItWroteAPercentage() {
        assertThat(limits(mutated(ADMISSION, defaulted("{\"aliquot.io/vgpu\": \"1\", \"nvidia.com/gpumem\": \"8k\"}")))
                        .get("nvidia.com/gpumem")
                        .stringValue())
                .isEqualTo("8k");
        ObjectNode percent = limits(mutated(
                ADMISSION, defaulted("{\"nvidia.com/gpumem-percentage\": \"50\", \"nvidia.com/gpumem\": \"8k\"}")));
        assertThat(percent.get("nvidia.com/gpumem").stringValue()).isEqualTo("0");
        assertThat(percent.get("aliquot.io/vgpu").stringValue()).isEqualTo("1");
    }

    /** An instance is whole and beside nothing else; the author of the container knows nothing of the LimitRange. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '"',
            value = {
                "nvidia.com/mig-1g.10gb=1 nvidia.com/gpumem=8k | nvidia.com/gpumem |"
                        + " aliquot.io/vgpu=1 mig.aliquot.io/1g.10gb=1 nvidia.com/gpumem=0",
                "mig.aliquot.io/1g.10gb=2 aliquot.io/vgpu=4 nvidia.com/gpucores=50 | aliquot.io/vgpu, nvidia.com/gpucores |"
                        + " aliquot.io/vgpu=2 mig.aliquot.io/1g.10gb=2 nvidia.com/gpucores=0",
                "nvidia.com/gpumem=3k mig.aliquot.io/1g.10gb=1 nvidia.com/mig-2g.20gb=1 |"
                        + " mig.aliquot.io/1g.10gb, nvidia.com/mig-2g.20gb |"
                        + " aliquot.io/vgpu=1 mig.aliquot.io/1g.10gb=0 nvidia.com/gpumem=3k nvidia.com/mig-2g.20gb=0",
                "aliquot.io/vgpu=1 mig.aliquot.io/1g.10gb=1 | mig.aliquot.io/1g.10gb |"
                        + " aliquot.io/vgpu=1 mig.aliquot.io/1g.10gb=0",
                "nvidia.com/mig-1g.10gb=1 nvidia.com/mig-2g.20gb=2 | nvidia.com/mig-2g.20gb |"
                        + " aliquot.io/vgpu=1 mig.aliquot.io/1g.10gb=1 nvidia.com/mig-2g.20gb=0",
                "cpu=1 mig.aliquot.io/1g.10gb=1 | mig.aliquot.io/1g.10gb | cpu=1 mig.aliquot.io/1g.10gb=0",
                // the LimitRange has added what admission renamed
                "aliquot.io/vgpu=1 mig.aliquot.io/1g.10gb=1 nvidia.com/mig-1g.10gb=2 | nvidia.com/mig-1g.10gb |"
                        + " aliquot.io/vgpu=1 mig.aliquot.io/1g.10gb=1 nvidia.com/mig-1g.10gb=0"
            })
    void limitsThatALimitRangeAddedLeaveInstancesAlone(String given, String added, String expected) {
        ObjectNode pod = defaulted(
                "{" + given.replaceAll("(\\S+)=(\\S+)", "\"$1\": \"$2\"").replace("\" \"", "\", \"") + "}");
        ((ObjectNode) pod.at("/metadata/annotations"))
                .put(
                        "kubernetes.io/limit-ranger",
                        "LimitRanger plugin set: %1$s request for container main; %1$s limit for container main"
                                .formatted(added));

        ObjectNode admitted = mutated(ADMISSION, pod);

        assertThat(amounts(admitted)).isEqualTo(expected);
        assertThat(amounts(mutated(ADMISSION, admitted))).as("once more").isEqualTo(expected);
    }

    private static String amounts(ObjectNode pod) {
        return limits(pod)
                .propertyStream()
                .filter(limit -> !limit.getKey().equals("nvidia.com/gpu")) // 0, for the GPU Operator
                .map(limit -> limit.getKey() + "=" + limit.getValue().stringValue())
                .sorted()
                .collect(Collectors.joining(" "));
    }

    /** As {@code min} and {@code defaultRequest} of a LimitRange do; Kubernetes refuses such a pod if the request stays. */
    @Test
    void aRequestThatALimitRangeAddedIsNoneWithoutItsLimit() {
        for (String written : new String[] {"{\"cpu\": \"1\"}", "{\"aliquot.io/vgpu\": \"1\"}"}) {
            ObjectNode pod = defaulted(written);
            ((ObjectNode) pod.at("/metadata/annotations"))
                    .put(
                            "kubernetes.io/limit-ranger",
                            "LimitRanger plugin set: nvidia.com/gpumem request for container main");
            ((ObjectNode) container(pod, 0).get("resources"))
                    .putObject("requests")
                    .put("nvidia.com/gpumem", "1k");

            ObjectNode admitted = mutated(ADMISSION, pod);

            assertThat(limits(admitted).get("nvidia.com/gpumem").stringValue()).isEqualTo("0");
            assertThat(container(admitted, 0)
                            .at("/resources/requests/nvidia.com~1gpumem")
                            .stringValue())
                    .isEqualTo("0");
            assertThat(spec(admitted).get("schedulerName").stringValue())
                    .isEqualTo(written.contains("vgpu") ? "aliquot-scheduler" : "default-scheduler");
        }
    }

    /** As with {@code default: {nvidia.com/gpumem: 0}}. */
    @Test
    void noMemoryCountsAsNoneWritten() {
        ObjectNode percent = limits(mutated(
                ADMISSION, requesting("{\"nvidia.com/gpumem-percentage\": \"50\", \"nvidia.com/gpumem\": \"0\"}")));
        assertThat(percent.get("aliquot.io/vgpu").stringValue()).isEqualTo("1");
        ObjectNode plain = requesting("{\"nvidia.com/gpumem\": \"0\"}");
        assertThat(mutated(ADMISSION, plain)).isEqualTo(plain);
    }

    @Test
    void theLimitsOfAnotherContainerAreItsOwn() {
        ObjectNode pod = defaulted("{\"nvidia.com/gpumem\": \"8k\"}");
        ((ObjectNode) pod.at("/metadata/annotations"))
                .put(
                        "kubernetes.io/limit-ranger",
                        "LimitRanger plugin set: nvidia.com/gpumem limit for container other");

        assertThat(limits(mutated(ADMISSION, pod)).has("aliquot.io/vgpu")).isTrue();
    }

    /** A container to which a LimitRange added its memory, as kube-apiserver 1.35 writes that down. */
    private static ObjectNode defaulted(String limits) {
        ObjectNode pod = requesting(limits);
        ((ObjectNode) pod.get("metadata"))
                .putObject("annotations")
                .put(
                        "kubernetes.io/limit-ranger",
                        "LimitRanger plugin set: cpu, nvidia.com/gpumem request for container main; nvidia.com/gpumem limit"
                                + " for container main; cpu limit for init container warm");
        return pod;
    }

    private static ObjectNode limits(ObjectNode pod) {
        return (ObjectNode) container(pod, 0).at("/resources/limits");
    }

    @Test
    void addsTheRequestsIfOnlyLimitsAreWritten() {
        ObjectNode pod = gpuPod();
        ((ObjectNode) container(pod, 0).get("resources")).remove("requests");

        assertThat(mutated(ADMISSION, pod).at("/spec/containers/0/resources/requests"))
                .isEqualTo(parse("{\"aliquot.io/vgpu\": \"1\"}"));
    }

    @Test
    void keepsTheRequestedNumberOfVgpus() {
        ObjectNode pod = mutated(ADMISSION, requesting("{\"nvidia.com/gpu\": \"2\", \"nvidia.com/gpumem\": \"3k\"}"));

        assertThat(container(pod, 0).at("/resources/limits/aliquot.io~1vgpu").stringValue())
                .isEqualTo("2");
    }

    @Test
    void replacesTheUsersVisibleDevicesInPlace() {
        ObjectNode pod = gpuPod();
        container(pod, 0).set("env", list("""
            {"name": "A", "value": "1"},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "B", "value": "$(NVIDIA_VISIBLE_DEVICES)"},
            {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}
            """));

        assertThat(mutated(ADMISSION, pod).at("/spec/containers/0/env")).isEqualTo(list("""
            {"name": "A", "value": "1"}, %s, {"name": "B", "value": "$(NVIDIA_VISIBLE_DEVICES)"}
            """.formatted(ALLOCATED)));
    }

    @Test
    void hidesTheGpusFromOtherContainersAndInitContainers() {
        ObjectNode pod = gpuPod();
        pod.withArray("/spec/containers").add(parse("""
            {"name": "sidecar", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}"""));
        pod.withArray("/spec/initContainers").add(parse("{\"name\": \"fetch\"}"));

        ObjectNode mutated = mutated(ADMISSION, pod);

        assertThat(container(mutated, 1).get("env")).isEqualTo(list(VOID));
        assertThat(mutated.at("/spec/initContainers/0/env")).isEqualTo(list(VOID));
    }

    @Test
    void addsAVolumeForEachGpuContainerIncludingInitContainers() {
        ObjectNode pod = gpuPod();
        String limits = "{\"nvidia.com/gpumem\": \"100\"}";
        pod.withArray("/spec/initContainers").add(containerRequesting("warm-up", limits));

        ObjectNode mutated = mutated(ADMISSION, pod);

        assertThat(mutated.at("/spec/volumes").findValuesAsString("name"))
                .containsExactly("kube-api-access-x7k2p", "aliquot-vgpu-warm-up", "aliquot-vgpu-main");
        assertThat(mutated.at("/spec/initContainers/0/volumeMounts/1/name").stringValue())
                .isEqualTo("aliquot-vgpu-warm-up");
    }

    @Test
    void shortensALongContainerNameInTheVolumeAndTheAnnotations() {
        ObjectNode pod = gpuPod();
        String name = "a".repeat(63);
        container(pod, 0).put("name", name);

        ObjectNode mutated = mutated(ADMISSION, pod);

        String volume = mutated.at("/spec/volumes/1/name").stringValue();
        assertThat(volume).matches("aliquot-vgpu-a{37}-[0-9a-f]{8}").hasSizeLessThanOrEqualTo(63);
        assertThat(mutated.at("/spec/volumes/1/downwardAPI/items/0/fieldRef/fieldPath")
                        .stringValue())
                .isEqualTo(
                        "metadata.annotations['aliquot.io/vgpu." + volume.substring("aliquot-vgpu-".length()) + "']");
    }

    @Test
    void deniesContainersWhoseShortenedNamesAreEqual() {
        ObjectNode pod = gpuPod();
        String name = "a".repeat(63);
        container(pod, 0).put("name", name);
        String volume = mutated(ADMISSION, pod).at("/spec/volumes/1/name").stringValue();
        pod.withArray("/spec/containers").add(container(gpuPod(), 0).put("name", volume.substring(13)));

        assertDenied(pod, "rename it");
    }

    @Test
    void movesNvidiasGpusToVgpusAndKeepsTheNameWithTheAmountZero() {
        ObjectNode pod = mutated(ADMISSION, requesting("{\"nvidia.com/gpu\": \"2\"}"));

        JsonNode translated = parse("{\"nvidia.com/gpu\": \"0\", \"aliquot.io/vgpu\": \"2\"}");
        assertThat(container(pod, 0).at("/resources/limits")).isEqualTo(translated);
        assertThat(container(pod, 0).at("/resources/requests")).isEqualTo(translated);
        assertThat(mutated(ADMISSION, pod)).isEqualTo(pod);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "{'nvidia.com/gpu.shared': '2'} | {'aliquot.io/vgpu': '2', 'nvidia.com/gpumem-percentage': '25', 'nvidia.com/gpucores': '20'}",
                "{'nvidia.com/gpu': '1'} | {'nvidia.com/gpu': '0', 'aliquot.io/vgpu': '1', 'nvidia.com/gpumem-percentage': '25', 'nvidia.com/gpucores': '20'}",
                "{'nvidia.com/gpu': '1', 'nvidia.com/gpumem': '3k'} | {'nvidia.com/gpu': '0', 'aliquot.io/vgpu': '1', 'nvidia.com/gpumem': '3k'}",
                "{'nvidia.com/gpu': '0'} | {'nvidia.com/gpu': '0', 'aliquot.io/vgpu': '0'}",
                "{'aliquot.io/vgpu': '1'} | {'aliquot.io/vgpu': '1', 'nvidia.com/gpu': '0'}",
                "{'aliyun.com/gpu': '1'} | {'aliquot.io/vgpu': '1', 'nvidia.com/gpu': '0'}",
            })
    void aSliceHasTheSizeOfItsNamespacesDefaults(String limits, String expected) {
        var slices = new PodDefaults(
                PodDefaults.Meaning.SLICE, new MemoryRequest.Percentage(25), 20, Optional.empty(), CoreRules.NONE);
        var admission = new GpuAdmission("", name -> Optional.of("nvidia"), false, Compatibility.NONE, () -> slices);
        ObjectNode pod = mutated(admission, requesting(limits.replace('\'', '"')));

        assertThat(container(pod, 0).at("/resources/limits")).isEqualTo(parse(expected.replace('\'', '"')));
        assertThat(container(pod, 0).at("/resources/requests")).isEqualTo(parse(expected.replace('\'', '"')));
        assertThat(mutated(admission, pod)).as("reinvoked").isEqualTo(pod);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "{'nvidia.com/gpu.shared': '1'} | annotation aliquot.io/default-memory",
                "{'nvidia.com/gpu.shared': '1', 'nvidia.com/gpu': '1'} | write either nvidia.com/gpu.shared or nvidia.com/gpu",
                "{'nvidia.com/gpu.shared': '1', 'aliquot.io/vgpu': '1'} | write either nvidia.com/gpu.shared or aliquot.io/vgpu",
                "{'nvidia.com/gpu.shared': '1', 'aliyun.com/gpu-mem': '3'} | not both",
                "{'nvidia.com/gpu.shared': '1.5', 'nvidia.com/gpumem': '100'} | a whole number from 0 to 1024 (slices)",
            })
    void deniesSlicesWithoutASizeAndContainersThatAskInTwoWays(String limits, String message) {
        assertDenied(requesting(limits.replace('\'', '"')), "container main: ", message);
    }

    @ParameterizedTest
    @CsvSource(
            nullValues = "-",
            value = {
                // resource, the pod's policy, the namespace's or the chart's, compatibility; expected
                "gpucores, -, -, NONE, -",
                "gpucores, -, elastic, NONE, elastic",
                "gpumem, -, elastic, NONE, elastic",
                "gpucores, -, fixed, HAMI, -",
                "gpucores, -, -, HAMI, elastic",
                "gpumem, -, -, HAMI, -",
                "gpucores, fixed, elastic, HAMI, fixed",
                "gpumem, none, elastic, NONE, none",
            })
    void aPodThatSharesGpusGetsTheDefaultOfItsCorePolicy(
            String resource, String own, String chosen, Compatibility compatibility, String expected) {
        PodDefaults defaults =
                PodDefaults.NONE.with(UnaryOperator.identity(), name -> name.equals("core-policy") ? chosen : null);
        var admission = new GpuAdmission("", name -> Optional.of("nvidia"), false, compatibility, () -> defaults);
        ObjectNode pod = requesting("{\"nvidia.com/" + resource + "\": \"30\"}");
        if (own != null) {
            pod.withObject("/metadata/annotations").put("aliquot.io/core-policy", own);
        }

        ObjectNode mutated = mutated(admission, pod);

        assertThat(mutated.at("/metadata/annotations/aliquot.io~1core-policy").stringValue(null))
                .isEqualTo(expected);
        assertThat(mutated(admission, mutated)).as("reinvoked").isEqualTo(mutated);
        assertThat(mutated(admission, requesting("{\"aliquot.io/vgpu\": \"1\"}"))
                        .at("/metadata/annotations/aliquot.io~1core-policy")
                        .isMissingNode())
                .isTrue();
    }

    @Test
    void onlyPodsThatShareGpusOrAskForSlicesDependOnTheNamespace() {
        Supplier<PodDefaults> unreadable = () -> {
            throw DeniedException.unreadable("namespace team", "timed out");
        };
        var admission = new GpuAdmission("", name -> Optional.of("nvidia"), false, Compatibility.NONE, unreadable);

        mutated(admission, requesting("{\"aliquot.io/vgpu\": \"1\"}"));
        mutated(admission, requesting("{\"mig.aliquot.io/1g.10gb\": \"1\"}"));
        mutated(admission, mutated(ADMISSION, requesting("{\"nvidia.com/gpu\": \"1\"}")));
        ObjectNode own = requesting("{\"nvidia.com/gpu\": \"1\", \"nvidia.com/gpumem\": \"3k\"}");
        own.withObject("/metadata/annotations")
                .put("aliquot.io/core-policy", "fixed")
                .put("aliquot.io/priority", "low");
        mutated(admission, own);
        for (String name : List.of("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/gpumem")) {
            assertThatThrownBy(() -> mutated(admission, requesting("{\"" + name + "\": \"1\"}")))
                    .hasMessageContaining("could not read the namespace team (timed out)");
        }
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "{'nvidia.com/gpu': '2'} | nvidia.com/gpu: 2 as aliquot.io/vgpu: 2 (whole cards)",
                "{'nvidia.com/gpu': '1', 'nvidia.com/gpumem': '3k'} | nvidia.com/gpu: 1 as aliquot.io/vgpu: 1",
                "{'aliyun.com/gpu-mem': '3'} | aliyun.com/gpu-mem: 3 as aliquot.io/vgpu: 1, nvidia.com/gpumem: 3072",
                "{'nvidia.com/mig-1g.10gb': '2'} | nvidia.com/mig-1g.10gb: 2 as mig.aliquot.io/1g.10gb: 2",
                "{'nvidia.com/gpumem': '3k', 'nvidia.com/priority': '0'} | nvidia.com/priority: 0 as annotation aliquot.io/priority: high",
            })
    void aWarningNamesWhatWasTranslated(String limits, String warning) {
        ObjectNode pod = requesting(limits.replace('\'', '"'));

        assertThat(warnings(pod)).containsExactly("container main: Aliquot reads " + warning);
        assertThat(warnings(mutated(ADMISSION, pod))).as("reinvoked").isEmpty();
        assertThat(warnings(gpuPod())).isEmpty();
    }

    @Test
    void warningsNameWhatOfHamiIsReadAndWhatHasNoEffect() {
        ObjectNode pod = gpuPod();
        pod.withObject("/metadata/annotations")
                .put("nvidia.com/use-gputype", "A100")
                .put("hami.io/gpu-scheduler-policy", "spread")
                .put("nvidia.com/vgpu-mode", "hami-core")
                .put("hami.io/device-scoring-weights", "1,1,1")
                .put("example.com/other", "x");
        pod.withObject("/metadata/labels").put("hami.io/webhook", "ignore");
        container(pod, 0).set("env", list("""
                {"name": "A", "value": "1"}, {"name": "GPU_CORE_UTILIZATION_POLICY", "value": "disable"}"""));

        assertThat(warnings(pod))
                .containsExactly(
                        "Aliquot reads the annotation nvidia.com/use-gputype as aliquot.io/use-gpu-model,"
                                + " hami.io/gpu-scheduler-policy as aliquot.io/gpu-placement",
                        "no effect in Aliquot has the annotation hami.io/device-scoring-weights, nvidia.com/vgpu-mode",
                        "no effect in Aliquot has the label hami.io/webhook: ignore; the namespace's label"
                                + " aliquot.io/webhook=ignore leaves its pods alone",
                        "container main: no effect in Aliquot has the variable GPU_CORE_UTILIZATION_POLICY; see the"
                                + " annotation aliquot.io/core-policy");
        assertThat(mutated(ADMISSION, pod).at("/spec/containers/0/env/1/value").stringValue())
                .isEqualTo("disable");
    }

    private static List<String> warnings(ObjectNode pod) {
        return Pods.respond(AdmissionReviewTest.review(pod), ADMISSION)
                .path("warnings")
                .valueStream()
                .map(JsonNode::stringValue)
                .toList();
    }

    @Test
    void toleratesTheTaintsOfGpuNodesOnce() {
        String gpu = "{\"key\": \"nvidia.com/gpu\", \"operator\": \"Exists\"}";
        String shared = "{\"key\": \"aliquot.io/shared\", \"operator\": \"Exists\"}";
        ObjectNode own = gpuPod();
        spec(own).set("tolerations", list(shared + ", " + gpu));
        ObjectNode partly = gpuPod();
        spec(partly).set("tolerations", list(shared));

        assertThat(spec(mutated(ADMISSION, gpuPod())).get("tolerations")).isEqualTo(list(gpu + ", " + shared));
        assertThat(spec(mutated(ADMISSION, own)).get("tolerations")).isEqualTo(list(shared + ", " + gpu));
        assertThat(spec(mutated(ADMISSION, partly)).get("tolerations")).isEqualTo(list(shared + ", " + gpu));
    }

    @Test
    void leavesAPodThatRequestsZeroGpusToItsScheduler() {
        ObjectNode pod = requesting("{\"aliquot.io/vgpu\": \"0\", \"nvidia.com/gpucores\": \"0\"}");
        spec(pod).put("nodeName", "node7");

        ObjectNode mutated = mutated(ADMISSION, pod);

        assertThat(spec(mutated).get("schedulerName").stringValue()).isEqualTo("default-scheduler");
        assertThat(container(mutated, 0).has("env")).isFalse();
        assertThat(mutated.at("/spec/volumes")).hasSize(1);
    }

    @Test
    void setsTheRuntimeClassIfConfiguredAndAbsent() {
        var admission = new GpuAdmission(
                "nvidia", name -> Optional.of("nvidia"), false, Compatibility.NONE, () -> PodDefaults.NONE);
        ObjectNode own = gpuPod();
        spec(own).put("runtimeClassName", "mine");

        assertThat(spec(mutated(admission, gpuPod())).get("runtimeClassName").stringValue())
                .isEqualTo("nvidia");
        assertThat(spec(mutated(admission, own)).get("runtimeClassName").stringValue())
                .isEqualTo("mine");
        assertThat(spec(mutated(ADMISSION, gpuPod())).has("runtimeClassName")).isFalse();
    }

    /** There any handler starts the pod, and its GPUs come with the CDI device. */
    @Test
    void whereEachNodeInjectsGpusByCdiAPodGetsNoRuntimeClassAndMayHaveAny() {
        var admission = new GpuAdmission(
                "nvidia", name -> Optional.of("runc"), true, Compatibility.NONE, () -> PodDefaults.NONE);
        ObjectNode own = gpuPod();
        spec(own).put("runtimeClassName", "mine");

        assertThat(spec(mutated(admission, gpuPod())).has("runtimeClassName")).isFalse();
        assertThat(spec(mutated(admission, own)).get("runtimeClassName").stringValue())
                .isEqualTo("mine");
        assertThat(Pods.respond(AdmissionReviewTest.review(own), admission).path("warnings"))
                .isEmpty();
        var sandbox = new GpuAdmission(
                "nvidia", name -> Optional.of("kata"), true, Compatibility.NONE, () -> PodDefaults.NONE);
        assertThat(Pods.respond(AdmissionReviewTest.review(own), sandbox)
                        .get("allowed")
                        .booleanValue())
                .isFalse();
    }

    @Test
    void aSecondCallChangesNothing() {
        ObjectNode once = mutated(ADMISSION, gpuPod());

        assertThat(mutated(ADMISSION, once)).isEqualTo(once);
    }

    @Test
    void hidesTheGpusFromASidecarThatAnotherWebhookInsertsLater() {
        ObjectNode once = mutated(ADMISSION, gpuPod());
        ObjectNode injected = once.deepCopy();
        injected.withArray("/spec/containers").insert(0, parse("{\"name\": \"proxy\", \"image\": \"proxy\"}"));

        ObjectNode twice = mutated(ADMISSION, injected);

        assertThat(container(twice, 0).get("env")).isEqualTo(list(VOID));
        twice.withArray("/spec/containers").remove(0);
        assertThat(twice).isEqualTo(once);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "{'nvidia.com/gpumem': '3Gi'} | write 3072 instead of 3Gi",
                "{'nvidia.com/gpumem': '-5'} | from 1 to 16777216 (MiB) instead of -5",
                "{'nvidia.com/gpumem': '1500m'} | a whole number",
                "{'nvidia.com/gpumem': '99999999999999999999'} | from 1 to 16777216",
                "{'nvidia.com/gpumem-percentage': '101'} | from 1 to 100",
                "{'nvidia.com/gpucores': '101'} | from 0 to 100",
                "{'nvidia.com/gpumem': '100', 'nvidia.com/gpumem-percentage': '5'} | not both",
                "{'aliquot.io/vgpu': '0', 'nvidia.com/gpumem': '100'} | aliquot.io/vgpu: 1",
                "{'nvidia.com/gpu': '0', 'nvidia.com/gpumem': '100'} | aliquot.io/vgpu: 1",
                "{'nvidia.com/gpu': '1', 'aliquot.io/vgpu': '1'} | write either nvidia.com/gpu or aliquot.io/vgpu",
                "{'nvidia.com/priority': 'high', 'nvidia.com/gpu': '1'} | nvidia.com/priority: expected a Kubernetes quantity",
                "{'nvidia.com/priority': '7', 'nvidia.com/gpu': '1'} | from 0 to 1 (0 for high, 1 for low) instead of 7",
                "{'aliyun.com/gpu-mem': '3Gi'} | from 1 to 16384 (GiB) instead of 3Gi",
                "{'aliyun.com/gpu-mem': '3', 'nvidia.com/gpu': '1'} | not both",
                "{'aliyun.com/gpu-core.percentage': '3'} | add aliyun.com/gpu-mem",
            })
    void deniesInvalidAmountsAndNamesTheContainer(String limits, String message) {
        assertDenied(requesting(limits.replace('\'', '"')), "container main: ", message);
    }

    @Test
    void deniesRequestsWithoutLimits() {
        ObjectNode pod = gpuPod();
        ((ObjectNode) container(pod, 0).get("resources")).remove("limits");

        assertDenied(pod, "container main: write aliquot.io/vgpu under resources.limits");
    }

    @ParameterizedTest
    @ValueSource(strings = {"nvidia.com/gpu", "nvidia.com/priority", "aliyun.com/gpu", "aliyun.com/gpu-mem"})
    void deniesResourcesOfOtherProductsUnderRequestsOnly(String resource) {
        ObjectNode pod = gpuPod();
        pod.withObject("/spec/containers/0/resources/requests").put(resource, "1");

        assertDenied(pod, "container main: write " + resource + " under resources.limits");
    }

    @Test
    void translatesAcksResources() {
        ObjectNode pod = mutated(ADMISSION, requesting("{\"cpu\": \"1\", \"aliyun.com/gpu-mem\": \"3\"}"));

        String translated = "{\"cpu\": \"1\", \"aliquot.io/vgpu\": \"1\", \"nvidia.com/gpumem\": \"3072\"}";
        assertThat(container(pod, 0).at("/resources/limits")).isEqualTo(parse(translated));
        assertThat(container(pod, 0).at("/resources/requests")).isEqualTo(parse(translated));
        assertThat(mutated(ADMISSION, pod)).isEqualTo(pod);
    }

    @Test
    void movesThePriorityIntoAnAnnotation() {
        ObjectNode pod =
                mutated(ADMISSION, requesting("{\"nvidia.com/gpumem\": \"3k\", \"nvidia.com/priority\": \"1\"}"));

        assertThat(pod.at("/metadata/annotations")).isEqualTo(parse("{\"aliquot.io/priority\": \"low\"}"));
        assertThat(pod.at("/spec/containers/0/resources").findValues("nvidia.com/priority"))
                .isEmpty();
        assertThat(mutated(ADMISSION, pod)).isEqualTo(pod);
    }

    @Test
    void deniesContradictoryPriorities() {
        String limits = "{\"nvidia.com/gpumem\": \"3k\", \"nvidia.com/priority\": \"1\"}";
        ObjectNode two = requesting(limits);
        two.withArray("/spec/containers").add(containerRequesting("second", limits.replace("1", "0")));
        assertDenied(two, "container second: a pod has one priority");

        ObjectNode both = requesting(limits);
        both.withObject("/metadata/annotations").put("aliquot.io/priority", "normal");
        assertDenied(both, "the annotation aliquot.io/priority and the resource nvidia.com/priority differ");
        both.withObject("/metadata/annotations").put("aliquot.io/priority", "low");
        assertThat(mutated(ADMISSION, both).get("metadata")).isEqualTo(both.get("metadata"));
    }

    @Test
    void acksWholeGpuResourceRequestsTheBestLinksUnlessAnAnnotationSaysOtherwise() {
        ObjectNode pod = requesting("{\"aliyun.com/gpu\": \"2\"}");
        ObjectNode own = pod.deepCopy();
        own.withObject("/metadata/annotations").put("hami.io/gpu-scheduler-policy", "spread");

        assertThat(mutated(ADMISSION, pod).at("/metadata/annotations"))
                .isEqualTo(parse("{\"aliquot.io/gpu-placement\": \"topology\"}"));
        assertThat(mutated(ADMISSION, own).get("metadata")).isEqualTo(own.get("metadata"));
    }

    @Test
    void withHamiCompatibilityAnnotatesThePodAndReducesCoresTo100() {
        var hami =
                new GpuAdmission("", name -> Optional.of("nvidia"), false, Compatibility.HAMI, () -> PodDefaults.NONE);
        ObjectNode pod = requesting("{\"nvidia.com/gpu\": \"1\", \"nvidia.com/gpumem\": \"3k\","
                + " \"nvidia.com/gpumem-percentage\": \"50\", \"nvidia.com/gpucores\": \"150\","
                + " \"nvidia.com/priority\": \"0\"}");

        ObjectNode mutated = mutated(hami, pod);

        assertThat(mutated.at("/metadata/annotations"))
                .isEqualTo(parse("{\"aliquot.io/compatibility\": \"hami\", \"aliquot.io/priority\": \"high\"}"));
        assertThat(container(mutated, 0).at("/resources/limits"))
                .isEqualTo(
                        parse(
                                "{\"aliquot.io/vgpu\": \"1\", \"nvidia.com/gpu\": \"0\", \"nvidia.com/gpumem\": \"3k\", \"nvidia.com/gpucores\": \"100\"}"));
        assertThat(mutated(hami, mutated)).isEqualTo(mutated);
    }

    @Test
    void allCoresByAcksResourceAreNotAWholeCardWhateverTheDefault() {
        var hami =
                new GpuAdmission("", name -> Optional.of("nvidia"), false, Compatibility.HAMI, () -> PodDefaults.NONE);
        ObjectNode pod = requesting("{\"aliyun.com/gpu-mem\": \"4\", \"aliyun.com/gpu-core.percentage\": \"100\"}");
        ObjectNode hamis = pod.deepCopy();
        hamis.withObject("/metadata/annotations").put("aliquot.io/compatibility", "hami");

        ObjectNode mutated = mutated(hami, pod);

        assertThat(mutated.at("/metadata/annotations")).isEqualTo(parse("{\"aliquot.io/compatibility\": \"none\"}"));
        assertThat(mutated(hami, mutated)).as("second call").isEqualTo(mutated);
        assertThat(mutated(ADMISSION, pod).at("/metadata/annotations").isMissingNode())
                .isTrue();
        assertThat(mutated(hami, hamis).get("metadata"))
                .as("with the annotation")
                .isEqualTo(hamis.get("metadata"));
    }

    @Test
    void thePodsCompatibilityAnnotationTakesPrecedence() {
        ObjectNode pod = requesting("{\"nvidia.com/gpu\": \"1\", \"nvidia.com/gpucores\": \"150\"}");
        ObjectNode hamis = pod.deepCopy();
        hamis.withObject("/metadata/annotations").put("aliquot.io/compatibility", "hami");
        ObjectNode withAnnotation = pod.deepCopy();
        withAnnotation.withObject("/metadata/annotations").put("aliquot.io/compatibility", "none");
        var hami =
                new GpuAdmission("", name -> Optional.of("nvidia"), false, Compatibility.HAMI, () -> PodDefaults.NONE);

        assertThat(mutated(ADMISSION, hamis)
                        .at("/spec/containers/0/resources/limits/nvidia.com~1gpucores")
                        .stringValue())
                .isEqualTo("100");
        assertThatThrownBy(() -> mutated(hami, withAnnotation)).hasMessageContaining("from 0 to 100");
        hamis.withObject("/metadata/annotations").put("aliquot.io/compatibility", "ack");
        assertDenied(hamis, "annotation aliquot.io/compatibility: \"ack\" is unknown; allowed: none, hami");
    }

    @Test
    void deniesAResourceOfAnotherDevicePluginInAGpuPod() {
        ObjectNode pod = gpuPod();
        pod.withArray("/spec/containers").add(containerRequesting("other", "{\"nvidia.com/gpu.other\": \"1\"}"));

        assertDenied(pod, "container other: nvidia.com/gpu.other belongs to another device plugin");
    }

    @Test
    void instancesOfMigAreVgpusAndKeepTheirProfileUnderAliquotsName() {
        ObjectNode pod = mutated(ADMISSION, requesting("{\"nvidia.com/mig-1g.10gb.me\": \"2\"}"));

        assertThat(pod.at("/spec/containers/0/resources/limits").toString())
                .contains("\"mig.aliquot.io/1g.10gb.me\":\"2\"", "\"aliquot.io/vgpu\":\"2\"")
                .doesNotContain("nvidia.com");
        assertThat(pod.at("/spec/schedulerName").stringValue()).isEqualTo("aliquot-scheduler");
    }

    @Test
    void deniesInvalidAmountsOfInitContainers() {
        ObjectNode pod = gpuPod();
        pod.withArray("/spec/initContainers").add(containerRequesting("warm-up", "{\"nvidia.com/gpumem\": \"3Gi\"}"));

        assertDenied(pod, "container warm-up: ", "write 3072");
    }

    @Test
    void deniesAPresetNodeNameAndNamesTheNodeSelectorToWrite() {
        ObjectNode pod = gpuPod();
        spec(pod).put("nodeName", "node7");

        assertDenied(pod, "remove spec.nodeName", "nodeSelector: {kubernetes.io/hostname: node7}");
    }

    @Test
    void deniesAnotherScheduler() {
        ObjectNode pod = gpuPod();
        spec(pod).put("schedulerName", "volcano");

        assertDenied(pod, "remove spec.schedulerName volcano", "aliquot-scheduler");
    }

    @Test
    void deniesAPrivilegedGpuContainerButNotAPrivilegedNeighbor() {
        ObjectNode pod = gpuPod();
        pod.withObject("/spec/containers/0/securityContext").put("privileged", true);
        assertDenied(pod, "container main: a privileged container sees every GPU", "remove securityContext.privileged");

        ObjectNode neighbor = gpuPod();
        neighbor.withArray("/spec/containers")
                .add(parse("{\"name\": \"other\", \"securityContext\": {\"privileged\": true}}"));
        assertThat(container(mutated(ADMISSION, neighbor), 1).get("env")).isEqualTo(list(VOID));
    }

    @ParameterizedTest
    @ValueSource(strings = {"SYS_ADMIN", "CAP_SYS_ADMIN", "sys_admin", "ALL", "all"})
    void deniesAShareWithACapabilityToUnmountItsLimits(String capability) {
        ObjectNode pod = gpuPod();
        pod.withArray("/spec/containers/0/securityContext/capabilities/add")
                .add("NET_ADMIN")
                .add(capability);
        assertThatThrownBy(() -> mutated(ADMISSION, pod))
                .hasMessageContainingAll("container main: with the capability " + capability, "remove it from");

        // NVIDIA's profilers need it, and a container with whole cards has no limits.
        container(pod, 0).set("resources", parse("{\"limits\": {\"nvidia.com/gpu\": \"1\"}}"));
        assertThat(mutated(ADMISSION, pod)).isNotNull();

        // With it NVIDIA's runtime lets a container change all instances of the card of its own.
        container(pod, 0).set("resources", parse("{\"limits\": {\"mig.aliquot.io/1g.10gb\": \"1\"}}"));
        assertDenied(pod, "with the capability " + capability + " it could change the MIG instances of others");
    }

    @ParameterizedTest
    @CsvSource({
        "runsc, refused",
        "gvisor, refused",
        "kata, refused",
        "kata-qemu-nvidia-gpu, refused",
        "io.containerd.kata.v2, refused",
        "urunc, refused",
        "krun, refused",
        "spin-v2, refused",
        "wasmtime-spin-v0-5-1, refused",
        "crun-wasm, refused",
        "runc, warning",
        "crun, warning",
        "spinnaker, warning",
        "'', warning",
        "nvidia, ''",
        "nvidia-cdi, ''",
        "nvidia-legacy, ''"
    })
    void aSandboxIsRefusedAndEachHandlerThatIsNotNvidiasIsAWarning(String handler, String outcome) {
        var admission = new GpuAdmission(
                "nvidia", name -> Optional.of(handler), false, Compatibility.NONE, () -> PodDefaults.NONE);
        ObjectNode pod = gpuPod();
        pod.withObject("/spec").put("runtimeClassName", "theirs");

        JsonNode response = Pods.respond(AdmissionReviewTest.review(pod), admission);

        assertThat(response.get("allowed").booleanValue()).isEqualTo(!outcome.equals("refused"));
        if (outcome.equals("refused")) {
            assertThat(response.at("/status/message").asString())
                    .contains("RuntimeClass theirs starts the pod by " + handler + ", a sandbox");
        }
        assertThat(response.path("warnings").toString().contains("the containers see no GPU"))
                .isEqualTo(outcome.equals("warning"));

        // The chart's own RuntimeClass, and one that Kubernetes refuses
        pod.withObject("/spec").put("runtimeClassName", "nvidia");
        assertThat(Pods.respond(AdmissionReviewTest.review(pod), admission).path("warnings"))
                .isEmpty();
        var unknown = new GpuAdmission("", name -> Optional.empty(), false, Compatibility.NONE, () -> PodDefaults.NONE);
        assertThat(Pods.respond(AdmissionReviewTest.review(pod), unknown).path("warnings"))
                .isEmpty();
    }

    /** The API server's policy refuses what a pod names itself. */
    @ParameterizedTest
    @CsvSource(
            nullValues = "-",
            value = {
                "elastic none, -, NONE, elastic",
                "elastic none, none, NONE, none",
                "fixed, -, HAMI, -",
                "fixed, elastic, NONE, -",
                "fixed elastic, -, HAMI, elastic",
            })
    void whatAPodGetsIsAllowedInItsNamespace(
            String allowed, String chosen, Compatibility compatibility, String expected) {
        PodDefaults defaults = PodDefaults.NONE
                .with(UnaryOperator.identity(), name -> name.equals("core-policy") ? chosen : null)
                .with(Map.of(
                        "aliquot.io/allowed-core-policies",
                        allowed.replace(" ", " , "),
                        "aliquot.io/allowed-priorities",
                        "low,high"));
        var admission = new GpuAdmission("", name -> Optional.of("nvidia"), false, compatibility, () -> defaults);
        ObjectNode pod = requesting("{\"nvidia.com/gpucores\": \"30\"}");

        ObjectNode mutated = mutated(admission, pod);

        JsonNode annotations = mutated.at("/metadata/annotations");
        assertThat(annotations.path("aliquot.io/core-policy").stringValue(null)).isEqualTo(expected);
        assertThat(annotations.path("aliquot.io/priority").asString("")).isEqualTo("low");
        assertThat(mutated(admission, mutated)).as("reinvoked").isEqualTo(mutated);

        pod.withObject("/metadata/annotations").put("aliquot.io/core-policy", "elastic");
        assertThat(mutated(admission, pod)
                        .at("/metadata/annotations/aliquot.io~1core-policy")
                        .asString())
                .isEqualTo("elastic");
    }

    /** Also those that admission does not read count. */
    @Test
    void deniesAnnotationsThatLeaveNoSpaceForThoseOfTheBinding() {
        ObjectNode pod = gpuPod();
        pod.withObject("/metadata/annotations").put("example.com/a", "x".repeat(200_000));
        assertThat(Pods.respond(AdmissionReviewTest.review(pod), ADMISSION)
                        .get("allowed")
                        .booleanValue())
                .isTrue();

        pod.withObject("/metadata/annotations").put("example.com/b", "\u20ac".repeat(20_500));
        assertThat(Pods.respond(AdmissionReviewTest.review(pod), ADMISSION)
                        .at("/status/message")
                        .asString())
                .contains("the pod's annotations have 261526 bytes", "Kubernetes allows 262144 together");
    }

    @ParameterizedTest
    @CsvSource({
        "aliquot.io/node-placement, tetris, 'aliquot.io/node-placement: \"tetris\" is unknown; allowed: binpack, spread, fragmentation'",
        "aliquot.io/gpu-placement, tetris, 'is unknown; allowed: binpack, spread, fragmentation, topology'",
        "aliquot.io/gpu-placement, '', is unknown; allowed: binpack",
        "aliquot.io/use-gpu-model, 'A100,', expected a GPU model",
        "aliquot.io/numa, 'yes', 'allowed: required, preferred'",
        "aliquot.io/priority, 7, '\"7\" is unknown; allowed: high, normal, low'",
        "aliquot.io/priority, urgent, 'allowed: high, normal, low'",
        "aliquot.io/core-policy, force, 'allowed: fixed, elastic, none'",
        "hami.io/gpu-scheduler-policy, tight, 'allowed: binpack, spread, topology-aware, numa'",
        "nvidia.com/use-gpuuuid, GPU-1, expected a GPU's UUID",
    })
    void deniesInvalidAnnotations(String key, String value, String message) {
        ObjectNode pod = gpuPod();
        pod.withObject("/metadata/annotations").put(key, value);

        assertDenied(pod, message);
    }

    @Test
    void removesTheAllocationOfThePodThatItWasCopiedFrom() {
        ObjectNode pod = mutated(ADMISSION, gpuPod());
        ObjectNode restored = pod.deepCopy();
        restored.withObject("/metadata/annotations")
                .put("aliquot.io/vgpu.main", "x")
                .put("aliquot.io/visible-devices.main", "all")
                .put("aliquot.io/vgpu.anything", "x")
                .put("aliquot.io/fence", "a/1")
                .put("aliquot.io/resize-fence", "a/1")
                .put("aliquot.io/priority", "low");
        pod.withObject("/metadata/annotations").put("aliquot.io/priority", "low");

        assertThat(ADMISSION.admit(EditedObject.of(restored)))
                .containsExactly("removed the annotation aliquot.io/vgpu.main and 4 more: only the Aliquot scheduler"
                        + " writes it, when it binds the pod");
        assertThat(restored).isEqualTo(pod);
        assertThat(ADMISSION.admit(EditedObject.of(restored))).isEmpty();
    }

    @Test
    void hidesTheGpusFromAContainerWithAnotherKindOfDevice() {
        ObjectNode pod = gpuPod();
        pod.withArray("/spec/containers")
                .add(containerRequesting("network", "{\"nvidia.com/hostdev\": \"1\", \"rdma/hca\": \"1\"}"));
        pod.withObject("/spec/containers/0/resources/limits").put("nvidia.com/hostdev", "1");

        ObjectNode mutated = mutated(ADMISSION, pod);

        assertThat(container(mutated, 1).get("env")).isEqualTo(list(VOID));
        assertThat(container(mutated, 0)
                        .at("/resources/limits/nvidia.com~1hostdev")
                        .stringValue())
                .isEqualTo("1");
    }

    /** RDMA beside GPUs: the names of NVIDIA's network operator and of the plugin of shared RDMA devices. */
    @Test
    void leavesWhatAShareRequestsOfNetworkCardsAsItIs() {
        ObjectNode pod = gpuPod();
        pod.withObject("/spec/containers/0/resources/limits")
                .put("nvidia.com/hostdev", "1")
                .put("rdma/hca_shared_devices_a", "1");
        pod.withArray("/spec/containers").add(containerRequesting("network", "{\"rdma/hca_shared_devices_a\": \"2\"}"));

        ObjectNode mutated = mutated(ADMISSION, pod);

        assertThat(limits(mutated))
                .isEqualTo(limits(mutated(ADMISSION, gpuPod()))
                        .put("nvidia.com/hostdev", "1")
                        .put("rdma/hca_shared_devices_a", "1"));
        assertThat(container(mutated, 1).get("resources"))
                .isEqualTo(container(pod, 1).get("resources"));
    }

    @Test
    void keepsTheUsersAnnotations() {
        ObjectNode pod = gpuPod();
        pod.withObject("/metadata/annotations")
                .put("aliquot.io/node-placement", "spread")
                .put("aliquot.io/gpu-placement", "binpack")
                .put("aliquot.io/their-own", "x");

        assertThat(mutated(ADMISSION, pod).get("metadata")).isEqualTo(pod.get("metadata"));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "/etc/aliquot",
                "/etc/aliquot/",
                "/etc/aliquot/vgpu",
                "/etc/ld.so.preload",
                "/etc",
                "/etc/",
                "/",
                "etc",
                "etc/ld.so.preload",
                "/usr/local/aliquot/region",
                "/usr/local/aliquot/0.1.0-abc/libaliquot.so",
                "/usr/local",
                "/usr",
                "//etc/aliquot",
                "/data//x",
                "/data/./x",
                "./x",
                "/data/../etc",
                "../etc",
                "/data/..",
                "/data/.",
                "..",
                "."
            })
    void deniesMountsAndDevicesThatCoverReservedPaths(String path) {
        ObjectNode mount = gpuPod();
        mount.withArray("/spec/containers/0/volumeMounts")
                .addObject()
                .put("name", "v")
                .put("mountPath", path);
        assertDenied(mount, "container main: ", "volumeMounts.mountPath " + path);

        ObjectNode device = gpuPod();
        device.withArray("/spec/containers/0/volumeDevices")
                .addObject()
                .put("name", "v")
                .put("devicePath", path);
        assertDenied(device, "container main: ", "volumeDevices.devicePath " + path);

        ObjectNode message = gpuPod();
        container(message, 0).put("terminationMessagePath", path);
        assertDenied(message, "container main: ", "terminationMessagePath " + path);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "/data",
                "/etc/aliquot-mine",
                "/etc/ld.so.preload.d",
                "/etc/ld.so.conf",
                "/usr/local/bin",
                "/usr/local/aliquots",
                "/opt/etc/aliquot",
                "/data/..x",
                "/...",
                "data/.hidden"
            })
    void allowsOtherPaths(String path) {
        ObjectNode pod = gpuPod();
        pod.withArray("/spec/containers/0/volumeMounts")
                .addObject()
                .put("name", "v")
                .put("mountPath", path);

        assertThat(mutated(ADMISSION, pod).at("/spec/containers/0/volumeMounts/1"))
                .isEqualTo(pod.at("/spec/containers/0/volumeMounts/1"));
    }

    @Test
    void aContainerWithoutAGpuMayMountAnyPath() {
        ObjectNode pod = gpuPod();
        pod.withArray("/spec/containers")
                .add(parse("{\"name\": \"c\", \"volumeMounts\": [{\"name\": \"v\", \"mountPath\": \"/etc\"}]}"));

        assertThat(mutated(ADMISSION, pod).at("/spec/containers/1/volumeMounts"))
                .hasSize(1);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{\"name\": \"aliquot-vgpu-main\", \"emptyDir\": {}}",
                "{\"name\": \"aliquot-vgpu-main\", \"downwardAPI\": {\"defaultMode\": 292, \"items\": ["
                        + "{\"path\": \"vgpu\", \"fieldRef\": {\"fieldPath\": \"metadata.annotations['mine']\"}}]}}"
            })
    void deniesAUsersVolumeWithTheReservedName(String volume) {
        ObjectNode pod = gpuPod();
        pod.withArray("/spec/volumes").add(parse(volume));

        assertDenied(pod, "rename the volume aliquot-vgpu-main");
    }

    @Test
    void repairsAForgedMountOfTheLimitFile() {
        ObjectNode pod = mutated(ADMISSION, gpuPod());
        ObjectNode forged = pod.deepCopy();
        ((ObjectNode) forged.at("/spec/containers/0/volumeMounts/1"))
                .put("subPath", "vgpu")
                .remove("readOnly");

        assertThat(mutated(ADMISSION, forged)).isEqualTo(pod);
    }

    @Test
    void allRefusalsOfAPodAreOneAnswer() {
        ObjectNode pod = gpuPod();
        spec(pod).put("schedulerName", "volcano");
        pod.withObject("/spec/containers/0/securityContext").put("privileged", true);
        assertDenied(
                pod,
                "(1) remove spec.schedulerName volcano",
                "; (2) container main: a privileged container sees every GPU");

        pod.withObject("/metadata/annotations").put("aliquot.io/priority", "7");
        for (String path : List.of("/etc", "/usr", "/etc/aliquot/x")) {
            pod.withArray("/spec/containers/0/volumeMounts")
                    .addObject()
                    .put("name", "v")
                    .put("mountPath", path);
        }
        assertDenied(pod, "(5) container main: volumeMounts.mountPath /etc/aliquot/x would cover", "; and 1 more");
    }

    @Test
    void eachContainerThatCannotBeTranslatedIsNamedAndNothingElseIsChecked() {
        ObjectNode pod = requesting("{\"nvidia.com/gpucores\": \"200\"}");
        pod.withArray("/spec/initContainers").add(containerRequesting("warm-up", "{\"nvidia.com/gpumem\": \"-1\"}"));
        spec(pod).put("schedulerName", "volcano");

        assertThatThrownBy(() -> ADMISSION.admit(EditedObject.of(pod)))
                .hasMessageContainingAll("(1) container warm-up: ", "; (2) container main: ")
                .hasMessageNotContaining("volcano");
    }

    /** Else clients would repeat a request that can have no success. */
    @Test
    void aRefusalThatLastsPrecedesOneThatClientsRepeat() {
        var admission = new GpuAdmission(
                "",
                name -> {
                    throw DeniedException.unreadable("RuntimeClass " + name, "timed out");
                },
                false,
                Compatibility.NONE,
                () -> PodDefaults.NONE);
        ObjectNode pod = gpuPod();
        spec(pod).put("runtimeClassName", "theirs");
        assertThat(Pods.respond(AdmissionReviewTest.review(pod), admission)
                        .at("/status/code")
                        .intValue())
                .isEqualTo(429);

        spec(pod).put("schedulerName", "volcano");
        JsonNode status =
                Pods.respond(AdmissionReviewTest.review(pod), admission).get("status");
        assertThat(status.get("code").intValue()).isEqualTo(403);
        assertThat(status.get("message").stringValue()).startsWith("remove spec.schedulerName volcano");
    }

    @Test
    void limitsTheLengthOfAMessageThatQuotesThePod() {
        ObjectNode pod = gpuPod();
        spec(pod).put("nodeName", "x\n".repeat(100_000));

        assertThatThrownBy(() -> ADMISSION.admit(EditedObject.of(pod)))
                .isInstanceOfSatisfying(
                        DeniedException.class,
                        e -> assertThat(e.getMessage()).hasSizeLessThan(700).doesNotContain("\n"));
    }

    @Test
    void leavesAPodThatTheApiServerWillRefuseToIt() {
        ObjectNode nameless = gpuPod();
        container(nameless, 0).remove("name");
        ObjectNode empty = parse("{\"metadata\": {}, \"spec\": {\"containers\": null}}");

        assertThat(mutated(ADMISSION, nameless)).isNotNull();
        assertThat(mutated(ADMISSION, empty)).isEqualTo(empty);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{}",
                "{\"spec\": []}",
                "{\"spec\": {\"containers\": {}}}",
                "{\"spec\": {\"containers\": [1]}}",
                "{\"spec\": {\"containers\": [{\"name\": 1}]}}",
                "{\"spec\": {\"containers\": [{\"name\": \"c\", \"resources\": {\"limits\": {\"cpu\": []}}}]}}",
                "{\"spec\": {\"containers\": [{\"name\": \"c\", \"resources\": {\"limits\": {\"aliquot.io/vgpu\": 1}}, \"env\": {}}]}}"
            })
    void rejectsJsonThatIsNotAPod(String pod) {
        assertThatThrownBy(() -> ADMISSION.admit(EditedObject.of(parse(pod))))
                .isInstanceOf(MalformedReviewException.class)
                .hasMessageStartingWith("expected ");
    }

    private static void assertDenied(ObjectNode pod, String... parts) {
        assertThatThrownBy(() -> ADMISSION.admit(EditedObject.of(pod.deepCopy())))
                .isInstanceOfSatisfying(
                        DeniedException.class,
                        e -> assertThat(e.getMessage()).contains(List.of(parts)).doesNotContain("\n"));
    }

    private static JsonNode list(String elements) {
        return parse("{\"list\": [" + elements + "]}").get("list");
    }
}
