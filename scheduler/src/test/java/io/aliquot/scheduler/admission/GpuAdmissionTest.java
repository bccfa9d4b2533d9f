package io.aliquot.scheduler.admission;

import static io.aliquot.scheduler.admission.Pods.asking;
import static io.aliquot.scheduler.admission.Pods.container;
import static io.aliquot.scheduler.admission.Pods.mutated;
import static io.aliquot.scheduler.admission.Pods.parse;
import static io.aliquot.scheduler.admission.Pods.share;
import static io.aliquot.scheduler.admission.Pods.spec;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.aliquot.api.Compatibility;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class GpuAdmissionTest {
    private static final GpuAdmission ADMISSION =
            new GpuAdmission("aliquot-scheduler", Optional.empty(), Compatibility.NONE);
    private static final String VOID = "{\"name\": \"NVIDIA_VISIBLE_DEVICES\", \"value\": \"void\"}";
    private static final String GRANTED = """
        {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {
          "apiVersion": "v1", "fieldPath": "metadata.annotations['aliquot.io/visible-devices.main']"}}}
        """;

    @Test
    void aShareReadsItsDevicesAndItsLimitsFromAnnotations() {
        ObjectNode pod = mutated(ADMISSION, share());

        assertThat(spec(pod).get("schedulerName").textValue()).isEqualTo("aliquot-scheduler");
        assertThat(container(pod, 0).get("env")).isEqualTo(list(GRANTED));
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
    void nothingElseOfThePodChanges() {
        ObjectNode pod = mutated(ADMISSION, share());
        container(pod, 0).remove("env");
        pod.withArray("/spec/volumes").remove(1);
        pod.withArray("/spec/containers/0/volumeMounts").remove(1);
        spec(pod).put("schedulerName", "default-scheduler");

        assertThat(pod).isEqualTo(share());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{\"nvidia.com/gpumem\": \"3k\"}",
                "{\"nvidia.com/gpumem-percentage\": \"50\"}",
                "{\"nvidia.com/gpucores\": \"30\"}"
            })
    void memoryOrCoresAloneGetOneVgpuInLimitsAndRequests(String limits) {
        ObjectNode pod = mutated(ADMISSION, asking(limits));

        assertThat(container(pod, 0).at("/resources/limits/nvidia.com~1gpu").textValue())
                .isEqualTo("1");
        assertThat(container(pod, 0).at("/resources/requests/nvidia.com~1gpu").textValue())
                .isEqualTo("1");
    }

    @Test
    void limitsWithoutRequestsAreEnough() {
        ObjectNode pod = share();
        ((ObjectNode) container(pod, 0).get("resources")).remove("requests");

        assertThat(mutated(ADMISSION, pod).at("/spec/containers/0/resources/requests"))
                .isEqualTo(parse("{\"nvidia.com/gpu\": \"1\"}"));
    }

    @Test
    void theNumberOfVgpusThatIsThereStays() {
        ObjectNode pod = mutated(ADMISSION, asking("{\"nvidia.com/gpu\": \"2\", \"nvidia.com/gpumem\": \"3k\"}"));

        assertThat(container(pod, 0).at("/resources/limits/nvidia.com~1gpu").textValue())
                .isEqualTo("2");
    }

    @Test
    void whatTheUserWroteAboutVisibleDevicesIsReplacedWhereItStands() {
        ObjectNode pod = share();
        container(pod, 0).set("env", list("""
            {"name": "A", "value": "1"},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "B", "value": "$(NVIDIA_VISIBLE_DEVICES)"},
            {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}
            """));

        assertThat(mutated(ADMISSION, pod).at("/spec/containers/0/env")).isEqualTo(list("""
            {"name": "A", "value": "1"}, %s, {"name": "B", "value": "$(NVIDIA_VISIBLE_DEVICES)"}
            """.formatted(GRANTED)));
    }

    @Test
    void otherContainersAndInitContainersSeeNoGpu() {
        ObjectNode pod = share();
        pod.withArray("/spec/containers").add(parse("""
            {"name": "sidecar", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}"""));
        pod.withArray("/spec/initContainers").add(parse("{\"name\": \"fetch\"}"));

        ObjectNode mutated = mutated(ADMISSION, pod);

        assertThat(container(mutated, 1).get("env")).isEqualTo(list(VOID));
        assertThat(mutated.at("/spec/initContainers/0/env")).isEqualTo(list(VOID));
    }

    @Test
    void eachGpuContainerHasAVolumeOfItsOwnInitContainersToo() {
        ObjectNode pod = share();
        String limits = "{\"nvidia.com/gpumem\": \"100\"}";
        pod.withArray("/spec/initContainers").add(container(asking(limits), 0).put("name", "warm-up"));

        ObjectNode mutated = mutated(ADMISSION, pod);

        assertThat(mutated.at("/spec/volumes").findValuesAsText("name"))
                .containsExactly("kube-api-access-x7k2p", "aliquot-vgpu-warm-up", "aliquot-vgpu-main");
        assertThat(mutated.at("/spec/initContainers/0/volumeMounts/1/name").textValue())
                .isEqualTo("aliquot-vgpu-warm-up");
    }

    @Test
    void aLongContainerNameIsCutForItsVolumeAndItsAnnotations() {
        ObjectNode pod = share();
        String name = "a".repeat(63);
        container(pod, 0).put("name", name);

        ObjectNode mutated = mutated(ADMISSION, pod);

        String volume = mutated.at("/spec/volumes/1/name").textValue();
        assertThat(volume).matches("aliquot-vgpu-a{37}-[0-9a-f]{8}").hasSizeLessThanOrEqualTo(63);
        assertThat(mutated.at("/spec/volumes/1/downwardAPI/items/0/fieldRef/fieldPath")
                        .textValue())
                .isEqualTo(
                        "metadata.annotations['aliquot.io/vgpu." + volume.substring("aliquot-vgpu-".length()) + "']");
    }

    @Test
    void containersWhoseShortNamesMeetAreRefused() {
        ObjectNode pod = share();
        String name = "a".repeat(63);
        container(pod, 0).put("name", name);
        String volume = mutated(ADMISSION, pod).at("/spec/volumes/1/name").textValue();
        pod.withArray("/spec/containers").add(container(share(), 0).put("name", volume.substring(13)));

        assertDenied(pod, "rename it");
    }

    @Test
    void aPodThatAsksForNothingAfterAllIsLeftToItsScheduler() {
        ObjectNode pod = asking("{\"nvidia.com/gpu\": \"0\", \"nvidia.com/gpucores\": \"0\"}");

        ObjectNode mutated = mutated(ADMISSION, pod);

        assertThat(spec(mutated).get("schedulerName").textValue()).isEqualTo("default-scheduler");
        assertThat(container(mutated, 0).get("env")).isEqualTo(list(VOID));
        assertThat(mutated.at("/spec/volumes")).hasSize(1);
    }

    @Test
    void inAPodThatAsksForNothingAfterAllWhatAnotherDevicePluginGivesIsKept() {
        ObjectNode pod = asking("{\"nvidia.com/gpu\": \"0\"}");
        ObjectNode mig =
                container(asking("{\"nvidia.com/mig-1g.10gb\": \"1\"}"), 0).put("name", "mig");
        pod.withArray("/spec/containers").add(mig);

        ObjectNode mutated = mutated(ADMISSION, pod);

        assertThat(container(mutated, 0).get("env")).isEqualTo(list(VOID));
        assertThat(container(mutated, 1)).isEqualTo(mig);
    }

    @Test
    void theRuntimeClassIsSetWhereConfiguredAndAbsent() {
        var admission = new GpuAdmission("aliquot-scheduler", Optional.of("nvidia"), Compatibility.NONE);
        ObjectNode own = share();
        spec(own).put("runtimeClassName", "mine");

        assertThat(spec(mutated(admission, share())).get("runtimeClassName").textValue())
                .isEqualTo("nvidia");
        assertThat(spec(mutated(admission, own)).get("runtimeClassName").textValue())
                .isEqualTo("mine");
        assertThat(spec(mutated(ADMISSION, share())).has("runtimeClassName")).isFalse();
    }

    @Test
    void asSecondPassChangesNothing() {
        ObjectNode once = mutated(ADMISSION, share());

        assertThat(mutated(ADMISSION, once)).isEqualTo(once);
    }

    @Test
    void aSidecarInjectedInFrontLaterSeesNoGpuAndDisturbsNothing() {
        ObjectNode once = mutated(ADMISSION, share());
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
                "{'nvidia.com/gpumem': '0'} | from 1 to 16777216",
                "{'nvidia.com/gpumem': 0} | from 1 to 16777216",
                "{'nvidia.com/gpumem-percentage': '0'} | from 1 to 100",
                "{'nvidia.com/gpumem-percentage': '101'} | from 1 to 100",
                "{'nvidia.com/gpucores': '101'} | from 0 to 100",
                "{'nvidia.com/gpumem': '100', 'nvidia.com/gpumem-percentage': '5'} | not both",
                "{'nvidia.com/gpu': '0', 'nvidia.com/gpumem': '100'} | nvidia.com/gpu: 1",
                "{'nvidia.com/priority': 'high', 'nvidia.com/gpu': '1'} | nvidia.com/priority: expected a Kubernetes quantity",
                "{'aliyun.com/gpu-mem': '3Gi'} | from 1 to 16384 (GiB) instead of 3Gi",
                "{'aliyun.com/gpu-mem': '3', 'nvidia.com/gpu': '1'} | not both",
                "{'aliyun.com/gpu-core.percentage': '3'} | write aliyun.com/gpu-mem beside",
            })
    void nonsensicalAmountsAreDeniedWithTheContainersName(String limits, String message) {
        assertDenied(asking(limits.replace('\'', '"')), "container main: ", message);
    }

    @Test
    void requestsAloneAreDeniedSinceTheyLimitNothing() {
        ObjectNode pod = share();
        ((ObjectNode) container(pod, 0).get("resources")).remove("limits");

        assertDenied(pod, "container main: write nvidia.com/gpu under resources.limits");
    }

    @ParameterizedTest
    @ValueSource(strings = {"nvidia.com/priority", "aliyun.com/gpu", "aliyun.com/gpu-mem"})
    void othersNamesUnderRequestsAloneAreDeniedToo(String resource) {
        ObjectNode pod = share();
        pod.withObject("/spec/containers/0/resources/requests").put(resource, "1");

        assertDenied(pod, "container main: write " + resource + " under resources.limits");
    }

    @Test
    void resourcesOfAckBecomeOurs() {
        ObjectNode pod = mutated(ADMISSION, asking("{\"cpu\": \"1\", \"aliyun.com/gpu-mem\": \"3\"}"));

        String ours = "{\"cpu\": \"1\", \"nvidia.com/gpu\": \"1\", \"nvidia.com/gpumem\": \"3072\"}";
        assertThat(container(pod, 0).at("/resources/limits")).isEqualTo(parse(ours));
        assertThat(container(pod, 0).at("/resources/requests")).isEqualTo(parse(ours));
        assertThat(mutated(ADMISSION, pod)).isEqualTo(pod);
    }

    @Test
    void priorityMovesIntoAnAnnotation() {
        ObjectNode pod = mutated(ADMISSION, asking("{\"nvidia.com/gpumem\": \"3k\", \"nvidia.com/priority\": \"7\"}"));

        assertThat(pod.at("/metadata/annotations")).isEqualTo(parse("{\"aliquot.io/priority\": \"7\"}"));
        assertThat(pod.at("/spec/containers/0/resources").findValues("nvidia.com/priority"))
                .isEmpty();
        assertThat(mutated(ADMISSION, pod)).isEqualTo(pod);
    }

    @Test
    void aPodHasOnePriority() {
        String limits = "{\"nvidia.com/gpumem\": \"3k\", \"nvidia.com/priority\": \"7\"}";
        ObjectNode two = asking(limits);
        two.withArray("/spec/containers")
                .add(container(asking(limits.replace("7", "8")), 0).put("name", "second"));
        assertDenied(two, "container second: a pod has one priority");

        ObjectNode both = asking(limits);
        both.withObject("/metadata/annotations").put("aliquot.io/priority", "8");
        assertDenied(both, "the annotation aliquot.io/priority and the resource nvidia.com/priority differ");
        both.withObject("/metadata/annotations").put("aliquot.io/priority", "7");
        assertThat(mutated(ADMISSION, both).get("metadata")).isEqualTo(both.get("metadata"));

        assertDenied(asking("{\"nvidia.com/priority\": \"7\"}"), "remove nvidia.com/priority, or ask for a GPU");
    }

    @Test
    void whoAsksForWellLinkedGpusByAcksResourceGetsThemUnlessItsAnnotationSaysElse() {
        ObjectNode pod = asking("{\"aliyun.com/gpu\": \"2\"}");
        ObjectNode own = pod.deepCopy();
        own.withObject("/metadata/annotations").put("hami.io/gpu-scheduler-policy", "spread");

        assertThat(mutated(ADMISSION, pod).at("/metadata/annotations"))
                .isEqualTo(parse("{\"aliquot.io/gpu-placement\": \"topology\"}"));
        assertThat(mutated(ADMISSION, own).get("metadata")).isEqualTo(own.get("metadata"));
    }

    @Test
    void asInHamiThePodSaysSoAndAmountsAreCutToWhatThereIs() {
        var hami = new GpuAdmission("aliquot-scheduler", Optional.empty(), Compatibility.HAMI);
        ObjectNode pod = asking("{\"nvidia.com/gpu\": \"1\", \"nvidia.com/gpumem\": \"3k\","
                + " \"nvidia.com/gpumem-percentage\": \"50\", \"nvidia.com/gpucores\": \"150\","
                + " \"nvidia.com/priority\": \"0\"}");

        ObjectNode mutated = mutated(hami, pod);

        assertThat(mutated.at("/metadata/annotations"))
                .isEqualTo(parse("{\"aliquot.io/compatibility\": \"hami\", \"aliquot.io/priority\": \"1\"}"));
        assertThat(container(mutated, 0).at("/resources/limits"))
                .isEqualTo(
                        parse(
                                "{\"nvidia.com/gpu\": \"1\", \"nvidia.com/gpumem\": \"3k\", \"nvidia.com/gpucores\": \"100\"}"));
        assertThat(mutated(hami, mutated)).isEqualTo(mutated);
    }

    @Test
    void allCoresInAcksNamesAreNoWholeCardWhateverTheDefault() {
        var hami = new GpuAdmission("aliquot-scheduler", Optional.empty(), Compatibility.HAMI);
        ObjectNode pod = asking("{\"aliyun.com/gpu-mem\": \"4\", \"aliyun.com/gpu-core.percentage\": \"100\"}");
        ObjectNode hamis = pod.deepCopy();
        hamis.withObject("/metadata/annotations").put("aliquot.io/compatibility", "hami");

        ObjectNode mutated = mutated(hami, pod);

        assertThat(mutated.at("/metadata/annotations")).isEqualTo(parse("{\"aliquot.io/compatibility\": \"none\"}"));
        assertThat(mutated(hami, mutated)).as("asked again").isEqualTo(mutated);
        assertThat(mutated(ADMISSION, pod).at("/metadata/annotations").isMissingNode())
                .isTrue();
        assertThat(mutated(hami, hamis).get("metadata")).as("its own word").isEqualTo(hamis.get("metadata"));
    }

    @Test
    void aPodsOwnWordOnCompatibilityGoesFirst() {
        ObjectNode pod = asking("{\"nvidia.com/gpu\": \"1\", \"nvidia.com/gpucores\": \"150\"}");
        ObjectNode hamis = pod.deepCopy();
        hamis.withObject("/metadata/annotations").put("aliquot.io/compatibility", "hami");
        ObjectNode ours = pod.deepCopy();
        ours.withObject("/metadata/annotations").put("aliquot.io/compatibility", "none");
        var hami = new GpuAdmission("aliquot-scheduler", Optional.empty(), Compatibility.HAMI);

        assertThat(mutated(ADMISSION, hamis)
                        .at("/spec/containers/0/resources/limits/nvidia.com~1gpucores")
                        .textValue())
                .isEqualTo("100");
        assertThatThrownBy(() -> mutated(hami, ours)).hasMessageContaining("from 0 to 100");
        hamis.withObject("/metadata/annotations").put("aliquot.io/compatibility", "ack");
        assertDenied(hamis, "annotation aliquot.io/compatibility: \"ack\" is unknown; allowed: none, hami");
    }

    @Test
    void whatAnotherDevicePluginGrantsIsNotInOnePodWithAShare() {
        ObjectNode pod = share();
        pod.withArray("/spec/containers")
                .add(container(asking("{\"nvidia.com/mig-1g.10gb\": \"1\"}"), 0).put("name", "mig"));

        assertDenied(pod, "container mig: nvidia.com/mig-1g.10gb is granted by another device plugin");
    }

    @Test
    void anInitContainersNonsenseIsDeniedToo() {
        ObjectNode pod = share();
        pod.withArray("/spec/initContainers")
                .add(container(asking("{\"nvidia.com/gpumem\": \"3Gi\"}"), 0).put("name", "warm-up"));

        assertDenied(pod, "container warm-up: ", "write 3072");
    }

    @Test
    void aPresetNodeNameIsDeniedWithTheSelectorToWriteInstead() {
        ObjectNode pod = share();
        spec(pod).put("nodeName", "node7");

        assertDenied(pod, "remove spec.nodeName", "nodeSelector: {kubernetes.io/hostname: node7}");
    }

    @Test
    void anotherSchedulerIsDenied() {
        ObjectNode pod = share();
        spec(pod).put("schedulerName", "volcano");

        assertDenied(pod, "remove spec.schedulerName volcano", "aliquot-scheduler");
    }

    @Test
    void aPrivilegedContainerCannotHaveAShareButItsNeighbourMay() {
        ObjectNode pod = share();
        pod.withObject("/spec/containers/0/securityContext").put("privileged", true);
        assertDenied(pod, "container main: a privileged container sees every GPU", "remove securityContext.privileged");

        ObjectNode neighbour = share();
        neighbour
                .withArray("/spec/containers")
                .add(parse("{\"name\": \"other\", \"securityContext\": {\"privileged\": true}}"));
        assertThat(container(mutated(ADMISSION, neighbour), 1).get("env")).isEqualTo(list(VOID));
    }

    @ParameterizedTest
    @CsvSource({
        "aliquot.io/vgpu.main, x, remove the annotation aliquot.io/vgpu.main",
        "aliquot.io/visible-devices.main, all, remove the annotation aliquot.io/visible-devices.main",
        "aliquot.io/vgpu.anything, x, remove the annotation aliquot.io/vgpu.anything",
        "aliquot.io/fence, a/1, remove the annotation aliquot.io/fence",
        "aliquot.io/resize-fence, a/1, remove the annotation aliquot.io/resize-fence",
        "aliquot.io/node-placement, tetris, 'aliquot.io/node-placement: \"tetris\" is unknown; allowed: binpack, spread, fragmentation'",
        "aliquot.io/gpu-placement, tetris, 'is unknown; allowed: binpack, spread, fragmentation, topology'",
        "aliquot.io/gpu-placement, '', is unknown; allowed: binpack",
        "aliquot.io/use-gpu-model, 'A100,', expected a GPU's model",
        "aliquot.io/numa, 'yes', 'allowed: required, preferred'",
        "aliquot.io/priority, high, is not a priority from 0",
        "aliquot.io/core-policy, force, 'allowed: fixed, elastic, none'",
        "hami.io/gpu-scheduler-policy, tight, 'allowed: binpack, spread, topology-aware, numa'",
        "nvidia.com/use-gpuuuid, GPU-1, expected a GPU's UUID",
    })
    void anAnnotationThatIsNotTheUsersToWriteIsDenied(String key, String value, String message) {
        ObjectNode pod = share();
        pod.withObject("/metadata/annotations").put(key, value);

        assertDenied(pod, message);
    }

    @Test
    void theUsersAnnotationsStay() {
        ObjectNode pod = share();
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
    void nothingOfTheUsersCoversTheReservedPaths(String path) {
        ObjectNode mount = share();
        mount.withArray("/spec/containers/0/volumeMounts")
                .addObject()
                .put("name", "v")
                .put("mountPath", path);
        assertDenied(mount, "container main: ", "volumeMounts.mountPath " + path);

        ObjectNode device = share();
        device.withArray("/spec/containers/0/volumeDevices")
                .addObject()
                .put("name", "v")
                .put("devicePath", path);
        assertDenied(device, "container main: ", "volumeDevices.devicePath " + path);

        ObjectNode message = share();
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
    void otherPathsAreTheUsers(String path) {
        ObjectNode pod = share();
        pod.withArray("/spec/containers/0/volumeMounts")
                .addObject()
                .put("name", "v")
                .put("mountPath", path);

        assertThat(mutated(ADMISSION, pod).at("/spec/containers/0/volumeMounts/1"))
                .isEqualTo(pod.at("/spec/containers/0/volumeMounts/1"));
    }

    @Test
    void aContainerWithoutAGpuMayMountAnything() {
        ObjectNode pod = share();
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
    void aVolumeOfTheUsersUnderOurNameIsDeniedNotTaken(String volume) {
        ObjectNode pod = share();
        pod.withArray("/spec/volumes").add(parse(volume));

        assertDenied(pod, "rename the volume aliquot-vgpu-main");
    }

    @Test
    void aMountOfOurVolumeThatOnlyLooksLikeOursIsPutRight() {
        ObjectNode pod = mutated(ADMISSION, share());
        ObjectNode forged = pod.deepCopy();
        ((ObjectNode) forged.at("/spec/containers/0/volumeMounts/1"))
                .put("subPath", "vgpu")
                .remove("readOnly");

        assertThat(mutated(ADMISSION, forged)).isEqualTo(pod);
    }

    @Test
    void whatAnAuthorWroteNeverFloodsTheAnswer() {
        ObjectNode pod = share();
        spec(pod).put("nodeName", "x\n".repeat(100_000));

        assertThatThrownBy(() -> ADMISSION.admit(pod))
                .isInstanceOfSatisfying(
                        DeniedException.class,
                        e -> assertThat(e.getMessage()).hasSizeLessThan(700).doesNotContain("\n"));
    }

    @Test
    void aPodThatTheApiServerWillRefuseAnywayIsLeftToIt() {
        ObjectNode nameless = share();
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
                "{\"spec\": {\"containers\": [{\"name\": \"c\", \"env\": {}}]}}"
            })
    void whatIsNoPodAtAllIsMalformed(String pod) {
        assertThatThrownBy(() -> ADMISSION.admit(parse(pod)))
                .isInstanceOf(MalformedReviewException.class)
                .hasMessageStartingWith("expected ");
    }

    private static void assertDenied(ObjectNode pod, String... parts) {
        assertThatThrownBy(() -> ADMISSION.admit(pod.deepCopy()))
                .isInstanceOfSatisfying(
                        DeniedException.class,
                        e -> assertThat(e.getMessage()).contains(List.of(parts)).doesNotContain("\n"));
    }

    private static JsonNode list(String elements) {
        return parse("{\"list\": [" + elements + "]}").get("list");
    }
}
