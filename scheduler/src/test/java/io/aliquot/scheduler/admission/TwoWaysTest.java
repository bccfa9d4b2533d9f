package io.aliquot.scheduler.admission;

import static io.aliquot.scheduler.admission.Pods.container;
import static io.aliquot.scheduler.admission.Pods.containerRequesting;
import static io.aliquot.scheduler.admission.Pods.mutated;
import static io.aliquot.scheduler.admission.Pods.parse;
import static io.aliquot.scheduler.admission.Pods.requesting;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.CoreRules;
import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.api.pods.PodDefaults;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import tools.jackson.databind.node.ObjectNode;

/** A container that asks in two ways at once, as the table in docs/reference.md, "Two ways at once", has it. */
class TwoWaysTest {
    /** Every name by which a container asks for GPUs, with an amount. */
    private static final List<String> NAMES = List.of(
            "aliquot.io/vgpu: 2",
            "nvidia.com/gpu: 2",
            "nvidia.com/gpu.shared: 2",
            "nvidia.com/gpumem: 3k",
            "nvidia.com/gpumem-percentage: 40",
            "nvidia.com/gpucores: 30",
            "mig.aliquot.io/1g.10gb: 2",
            "mig.aliquot.io/2g.20gb: 2",
            "nvidia.com/mig-1g.10gb: 2",
            "nvidia.com/mig-2g.20gb: 2",
            "aliyun.com/gpu: 2",
            "aliyun.com/gpu-mem: 8",
            "aliyun.com/gpu-core.percentage: 20");

    /** The pairs that have a meaning, and the limits of the stored pod. */
    private static final Map<String, String> ALLOWED = allowed();

    private static Map<String, String> allowed() {
        var allowed = new TreeMap<String, String>();
        for (String count : List.of("aliquot.io/vgpu: 2", "nvidia.com/gpu: 2", "nvidia.com/gpu.shared: 2")) {
            for (String size :
                    List.of("nvidia.com/gpumem: 3k", "nvidia.com/gpumem-percentage: 40", "nvidia.com/gpucores: 30")) {
                allowed.put(
                        count + ", " + size,
                        "aliquot.io/vgpu: 2, " + size
                                + (count.startsWith("nvidia.com/gpu:") ? ", nvidia.com/gpu: 0" : ""));
            }
        }
        for (String memory : List.of("nvidia.com/gpumem: 3k", "nvidia.com/gpumem-percentage: 40")) {
            allowed.put(
                    memory + ", nvidia.com/gpucores: 30",
                    "aliquot.io/vgpu: 1, " + memory + ", nvidia.com/gpucores: 30");
        }
        for (String profile : List.of("1g.10gb", "2g.20gb")) {
            for (String name : List.of("mig.aliquot.io/", "nvidia.com/mig-")) {
                allowed.put(
                        "aliquot.io/vgpu: 2, " + name + profile + ": 2",
                        "aliquot.io/vgpu: 2, mig.aliquot.io/" + profile + ": 2, nvidia.com/gpu: 0");
            }
        }
        allowed.put(
                "aliyun.com/gpu-mem: 8, aliyun.com/gpu-core.percentage: 20",
                "aliquot.io/vgpu: 1, nvidia.com/gpumem: 8192, nvidia.com/gpucores: 20");
        return allowed;
    }

    private static GpuAdmission admission(Compatibility compatibility, PodDefaults.Meaning gpu) {
        var slices = new PodDefaults(gpu, new MemoryRequest.Mebibytes(4096), 25, Optional.empty(), CoreRules.NONE);
        return new GpuAdmission("", name -> Optional.of("nvidia"), false, compatibility, () -> slices);
    }

    private static ObjectNode limits(String written) {
        return parse("{\"" + written.replace(": ", "\": \"").replace(", ", "\", \"") + "\"}");
    }

    private static String key(String name) {
        return name.substring(0, name.indexOf(':'));
    }

    /** Each pair, also in the other order, and whatever nvidia.com/gpu alone means. */
    @ParameterizedTest
    @EnumSource(PodDefaults.Meaning.class)
    void twoNamesHaveADocumentedMeaningOrTheRefusalNamesBoth(PodDefaults.Meaning gpu) {
        GpuAdmission admission = admission(Compatibility.NONE, gpu);
        var found = new TreeMap<String, String>();
        for (int i = 0; i < NAMES.size(); i++) {
            for (int j = i + 1; j < NAMES.size(); j++) {
                String pair = NAMES.get(i) + ", " + NAMES.get(j);
                for (String written : List.of(pair, NAMES.get(j) + ", " + NAMES.get(i))) {
                    if (ALLOWED.containsKey(pair)) {
                        ObjectNode pod =
                                mutated(admission, requesting(limits(written).toString()));
                        assertThat(container(pod, 0).at("/resources/limits"))
                                .as(written)
                                .isEqualTo(limits(ALLOWED.get(pair)));
                        assertThat(mutated(admission, pod)).as(written).isEqualTo(pod);
                        found.put(pair, ALLOWED.get(pair));
                    } else {
                        assertThatThrownBy(() -> mutated(
                                        admission, requesting(limits(written).toString())))
                                .as(written)
                                .isInstanceOf(DeniedException.class)
                                .message()
                                .contains("container main: ", key(NAMES.get(i)), key(NAMES.get(j)))
                                .containsPattern("write either|remove");
                    }
                }
            }
        }
        assertThat(found).isEqualTo(ALLOWED);
    }

    @Test
    void withHamisMeaningMemoryInMebibytesCountsAndPercentDoesNot() {
        ObjectNode pod = mutated(
                admission(Compatibility.HAMI, PodDefaults.Meaning.CARD),
                requesting(limits("nvidia.com/gpumem: 3k, nvidia.com/gpumem-percentage: 40")
                        .toString()));

        assertThat(container(pod, 0).at("/resources/limits"))
                .isEqualTo(limits("nvidia.com/gpumem: 3k, aliquot.io/vgpu: 1"));
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "aliquot.io/vgpu: 1, nvidia.com/mig-1g.10gb: 2 | remove aliquot.io/vgpu: each of nvidia.com/mig-1g.10gb: 2 is one vGPU",
                "nvidia.com/mig-1g.10gb: 1, mig.aliquot.io/1g.10gb: 2 | write either mig.aliquot.io/1g.10gb or nvidia.com/mig-1g.10gb, not both: a container gets MIG instances of one profile",
                "nvidia.com/mig-1g.10gb: 1, nvidia.com/gpumem: 100 | write either nvidia.com/mig-1g.10gb or nvidia.com/gpumem, not both: an instance of MIG is always whole",
                "nvidia.com/mig-1g.10gb: 1, nvidia.com/gpu: 1 | write either nvidia.com/mig-1g.10gb or nvidia.com/gpu, not both",
                "nvidia.com/mig-1g.10gb: 1, aliyun.com/gpu-core.percentage: 5 | write either nvidia.com/mig-1g.10gb or aliyun.com/gpu-core.percentage, not both",
            })
    void aRefusalSaysWhatToWrite(String written, String message) {
        assertThatThrownBy(() -> mutated(
                        admission(Compatibility.NONE, PodDefaults.Meaning.CARD),
                        requesting(limits(written).toString())))
                .hasMessageContaining(message);
    }

    /** A chart may write a name that it does not use with the amount 0, and so may a LimitRange. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "aliquot.io/vgpu: 1, nvidia.com/gpu.shared: 0 | aliquot.io/vgpu: 1, nvidia.com/gpu: 0",
                "nvidia.com/gpu: 1, nvidia.com/gpu.shared: 0 | aliquot.io/vgpu: 1, nvidia.com/gpu: 0",
                "nvidia.com/gpu: 0, nvidia.com/gpu.shared: 1 | aliquot.io/vgpu: 1, nvidia.com/gpumem: 4096, nvidia.com/gpucores: 25, nvidia.com/gpu: 0",
                "nvidia.com/gpumem: 3k, nvidia.com/gpumem-percentage: 0 | aliquot.io/vgpu: 1, nvidia.com/gpumem: 3k, nvidia.com/gpumem-percentage: 0",
                "nvidia.com/mig-1g.10gb: 1, nvidia.com/gpumem: 0 | aliquot.io/vgpu: 1, mig.aliquot.io/1g.10gb: 1, nvidia.com/gpumem: 0",
                "nvidia.com/mig-1g.10gb: 0, nvidia.com/gpumem: 3k | aliquot.io/vgpu: 1, nvidia.com/mig-1g.10gb: 0, nvidia.com/gpumem: 3k",
                "aliyun.com/gpu-mem: 3, nvidia.com/gpu: 0 | aliquot.io/vgpu: 1, nvidia.com/gpumem: 3072, nvidia.com/gpu: 0",
                "aliyun.com/gpu-mem: 3, nvidia.com/gpumem: 0, nvidia.com/gpucores: 0 | aliquot.io/vgpu: 1, nvidia.com/gpumem: 3072, nvidia.com/gpucores: 0",
            })
    void anAmountOfZeroAsksForNothing(String written, String stored) {
        GpuAdmission admission = admission(Compatibility.NONE, PodDefaults.Meaning.CARD);
        ObjectNode pod = mutated(admission, requesting(limits(written).toString()));

        assertThat(container(pod, 0).at("/resources/limits")).isEqualTo(limits(stored));
        assertThat(mutated(admission, pod)).as("reinvoked").isEqualTo(pod);

        ObjectNode applied = pod.deepCopy();
        for (String kind : List.of("limits", "requests")) {
            applied.withObject("/spec/containers/0/resources/" + kind).setAll(limits(written));
        }
        assertThat(mutated(new UpdateAdmission(), applied)).as("applied again").isEqualTo(pod);
    }

    /** {@code max} of a LimitRange becomes a default, which the pod's author did not write. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "aliyun.com/gpu-mem: 3 | aliquot.io/vgpu: 1, nvidia.com/gpumem: 3072, nvidia.com/gpucores: 0",
                "nvidia.com/mig-1g.10gb: 1 | aliquot.io/vgpu: 1, mig.aliquot.io/1g.10gb: 1, nvidia.com/gpumem: 0, nvidia.com/gpucores: 0",
                "nvidia.com/mig-1g.10gb: 1, aliquot.io/vgpu: 1 | aliquot.io/vgpu: 1, mig.aliquot.io/1g.10gb: 1, nvidia.com/gpumem: 0, nvidia.com/gpucores: 0",
            })
    void aDefaultOfALimitRangeIsNoSecondWay(String written, String stored) {
        GpuAdmission admission = admission(Compatibility.NONE, PodDefaults.Meaning.CARD);
        ObjectNode sent = requesting(limits(written + ", nvidia.com/gpumem: 8k, nvidia.com/gpucores: 50")
                .toString());
        sent.withObject("/metadata/annotations")
                .put(
                        "kubernetes.io/limit-ranger",
                        "LimitRanger plugin set: nvidia.com/gpucores, nvidia.com/gpumem request for container main;"
                                + " nvidia.com/gpucores, nvidia.com/gpumem limit for container main");
        ObjectNode pod = mutated(admission, sent);

        assertThat(container(pod, 0).at("/resources/limits")).isEqualTo(limits(stored));
        assertThat(mutated(admission, pod)).as("reinvoked").isEqualTo(pod);
    }

    @Test
    void twoContainersMayAskInDifferentWays() {
        List<String> ways = List.of(
                "nvidia.com/gpu.shared: 1", "nvidia.com/mig-1g.10gb: 1", "aliyun.com/gpu-mem: 3", "nvidia.com/gpu: 1");
        ObjectNode pod = requesting("{}");
        pod.withArray("/spec/containers").remove(0);
        for (int i = 0; i < ways.size(); i++) {
            pod.withArray("/spec/containers")
                    .add(containerRequesting("c" + i, limits(ways.get(i)).toString()));
        }
        ObjectNode stored = mutated(admission(Compatibility.NONE, PodDefaults.Meaning.CARD), pod);

        var found = new ArrayList<ObjectNode>();
        for (int i = 0; i < ways.size(); i++) {
            found.add((ObjectNode) container(stored, i).at("/resources/limits"));
        }
        assertThat(found)
                .containsExactly(
                        limits("aliquot.io/vgpu: 1, nvidia.com/gpumem: 4096, nvidia.com/gpucores: 25"),
                        limits("aliquot.io/vgpu: 1, mig.aliquot.io/1g.10gb: 1"),
                        limits("aliquot.io/vgpu: 1, nvidia.com/gpumem: 3072"),
                        limits("aliquot.io/vgpu: 1, nvidia.com/gpu: 0"));
    }
}
