package io.aliquot.scheduler.admission;

import static io.aliquot.scheduler.admission.Pods.container;
import static io.aliquot.scheduler.admission.Pods.mutated;
import static io.aliquot.scheduler.admission.Pods.parse;
import static io.aliquot.scheduler.admission.Pods.requesting;
import static io.aliquot.scheduler.admission.Pods.spec;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.CoreRules;
import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.api.pods.PodDefaults;
import java.util.Optional;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import tools.jackson.databind.node.ObjectNode;

/** What an update makes of a pod into which a manifest has been merged. {@code ManifestsIT} has kubectl do it. */
class UpdateAdmissionTest {
    private static final UpdateAdmission UPDATE = new UpdateAdmission();

    private static GpuAdmission creation(Compatibility compatibility) {
        var slices = new PodDefaults(
                PodDefaults.Meaning.CARD, new MemoryRequest.Mebibytes(4096), 25, Optional.empty(), CoreRules.NONE);
        return new GpuAdmission("nvidia", name -> Optional.of("nvidia"), false, compatibility, () -> slices);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{'nvidia.com/gpu': '1'}",
                "{'nvidia.com/gpu': '2', 'nvidia.com/gpumem': '3k', 'nvidia.com/gpucores': '30'}",
                "{'nvidia.com/gpu.shared': '1'}",
                "{'nvidia.com/gpu.shared': '1', 'nvidia.com/gpumem': '3k'}",
                "{'nvidia.com/gpumem': '3k', 'nvidia.com/priority': '1'}",
                "{'nvidia.com/gpumem-percentage': '40'}",
                "{'aliyun.com/gpu-mem': '3', 'aliyun.com/gpu-core.percentage': '20'}",
                "{'aliyun.com/gpu': '2'}",
                "{'nvidia.com/mig-1g.10gb': '2'}",
                "{'aliquot.io/vgpu': '1'}"
            })
    void theManifestOfAPodChangesNothingOfIt(String limits) {
        for (Compatibility compatibility : Compatibility.values()) {
            ObjectNode written = requesting(limits.replace('\'', '"'));
            spec(written)
                    .set("tolerations", parse("{\"t\": [{\"key\": \"own\"}]}").get("t"));
            container(written, 0)
                    .set(
                            "env",
                            parse("{\"t\": [{\"name\": \"NVIDIA_VISIBLE_DEVICES\", \"value\": \"all\"}]}")
                                    .get("t"));
            ObjectNode stored = mutated(creation(compatibility), written);

            assertThat(mutated(UPDATE, merged(stored, written))).isEqualTo(stored);
        }
    }

    /** A namespace that calls nvidia.com/gpu a card by now, or that has no size of slices any more, is not read. */
    @ParameterizedTest
    @ValueSource(
            strings = {
                "{'nvidia.com/gpu': '1'}",
                "{'nvidia.com/gpu': '2', 'nvidia.com/gpumem': '3k'}",
                "{'nvidia.com/gpu.shared': '1'}"
            })
    void aPodKeepsTheSizeOfASliceThatItsNamespaceHadAtItsCreation(String limits) {
        var slices = new PodDefaults(
                PodDefaults.Meaning.SLICE, new MemoryRequest.Percentage(25), 20, Optional.empty(), CoreRules.NONE);
        ObjectNode written = requesting(limits.replace('\'', '"'));
        ObjectNode stored = mutated(
                new GpuAdmission("nvidia", name -> Optional.of("nvidia"), false, Compatibility.NONE, () -> slices),
                written);

        assertThat(mutated(UPDATE, merged(stored, written))).isEqualTo(stored);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "{'nvidia.com/gpu': '1'} | {'nvidia.com/gpu': '2'}",
                "{'nvidia.com/gpu': '1'} | {'nvidia.com/gpu.shared': '1', 'nvidia.com/gpumem': '4096'}",
                "{'nvidia.com/gpu.shared': '1'} | {'nvidia.com/gpu.shared': '2'}",
                "{'nvidia.com/gpu.shared': '1'} | {'nvidia.com/gpu.shared': '1', 'nvidia.com/gpumem': '5000'}",
                "{'nvidia.com/gpumem': '3k', 'nvidia.com/priority': '1'} | {'nvidia.com/gpumem': '3k', 'nvidia.com/priority': '0'}",
                "{'aliyun.com/gpu-mem': '3'} | {'aliyun.com/gpu-mem': '4'}",
                "{'nvidia.com/mig-1g.10gb': '1'} | {'nvidia.com/mig-1g.10gb': '2'}",
            })
    void anotherManifestLeavesADifferenceThatKubernetesRefuses(String before, String after) {
        ObjectNode stored = mutated(creation(Compatibility.NONE), requesting(before.replace('\'', '"')));
        ObjectNode updated = mutated(UPDATE, merged(stored, requesting(after.replace('\'', '"'))));

        assertThat(container(updated, 0).get("resources"))
                .isNotEqualTo(container(stored, 0).get("resources"));
    }

    /** As kubectl apply merges: amounts and variables by name, and lists without a key as a whole. */
    private static ObjectNode merged(ObjectNode stored, ObjectNode written) {
        ObjectNode merged = stored.deepCopy();
        for (String kind : new String[] {"limits", "requests"}) {
            merged.withObject("/spec/containers/0/resources/" + kind)
                    .setAll(written.withObject("/spec/containers/0/resources/" + kind));
        }
        if (container(written, 0).has("env")) {
            merged.withObject("/spec/containers/0/env/0").put("value", "all");
        }
        if (spec(written).has("tolerations")) {
            spec(merged).set("tolerations", spec(written).get("tolerations"));
        }
        spec(merged).put("schedulerName", "default-scheduler");
        return merged;
    }
}
