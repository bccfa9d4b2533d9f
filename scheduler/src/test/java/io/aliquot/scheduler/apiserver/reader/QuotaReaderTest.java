package io.aliquot.scheduler.apiserver.reader;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.ledger.Quota;
import io.aliquot.scheduler.ledger.QuotaResource;
import io.aliquot.scheduler.ledger.QuotaScope;
import io.fabric8.kubernetes.api.model.ResourceQuota;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

class QuotaReaderTest {
    private static final KubernetesSerialization YAML = new KubernetesSerialization();

    @Test
    void limitsOfGpusAreReadAndOthersAreKubernetesOwn() {
        QuotaReader.Reading reading = read("""
                hard: {limits.nvidia.com/gpumem: 20k, limits.nvidia.com/gpucores: "150", limits.nvidia.com/gpu: "4",
                       limits.aliquot.io/vgpu: "3", limits.cpu: "10", pods: "5", requests.aliquot.io/vgpu: "9"}""");
        assertThat(reading.problems()).isEmpty();
        assertThat(reading.quota())
                .contains(new Quota(
                        "team-a",
                        "gpus",
                        "uid",
                        Map.of(QuotaResource.MEMORY, 20_000L, QuotaResource.CORES, 150L, QuotaResource.VGPUS, 3L),
                        List.of()));
    }

    @Test
    void requestsGetTheNameToUse() {
        QuotaReader.Reading reading =
                read("hard: {requests.nvidia.com/gpumem: 4k, requests.nvidia.com/gpu: 4, requests.memory: 1Gi}");
        assertThat(reading.quota()).isEmpty();
        assertThat(reading.problems())
                .containsExactly(
                        "requests.nvidia.com/gpu does not count the vGPUs of Aliquot's pods; write limits.nvidia.com/gpu",
                        "Kubernetes counts requests.nvidia.com/gpumem as pods write it: once for several vGPUs, not for"
                                + " percentages, whole cards and resizes; write limits.nvidia.com/gpumem, which Aliquot"
                                + " enforces exactly");
    }

    @Test
    void namesThatNothingCountsGetTheNameToUse() {
        assertThat(read("hard: {limits.aliyun.com/gpu-mem: 8, limits.nvidia.com/gpumem-percentage: 50}")
                        .problems())
                .containsExactly(
                        "nothing enforces limits.aliyun.com/gpu-mem; write limits.nvidia.com/gpumem, in MiB",
                        "nothing enforces limits.nvidia.com/gpumem-percentage; write limits.nvidia.com/gpumem, in MiB");
    }

    /** The API server accepts these quantities. */
    @Test
    void badQuantitiesAreEnforcedAsTheyAreAndNamed() {
        QuotaReader.Reading binary = read("hard: {limits.nvidia.com/gpumem: 20Gi}");
        assertThat(binary.quota().orElseThrow().hard()).containsEntry(QuotaResource.MEMORY, 20L << 30);
        assertThat(binary.problems())
                .containsExactly(
                        "limits.nvidia.com/gpumem counts MiB, so that 20Gi is 21474836480 MiB; write the number of"
                                + " MiB, 20480");
        assertThat(read("hard: {limits.nvidia.com/gpumem: 1500m}")
                        .quota()
                        .orElseThrow()
                        .hard())
                .containsEntry(QuotaResource.MEMORY, 1L);
        assertThat(read("hard: {limits.nvidia.com/gpumem: 1000E}")
                        .quota()
                        .orElseThrow()
                        .hard())
                .containsEntry(QuotaResource.MEMORY, Long.MAX_VALUE);
    }

    @Test
    void scopesThatPodsAreSelectedByAreRead() {
        assertThat(read("""
                hard: {limits.nvidia.com/gpumem: 1}
                scopes: [NotTerminating]
                scopeSelector: {matchExpressions: [
                  {scopeName: PriorityClass, operator: In, values: [low, batch]},
                  {scopeName: PriorityClass, operator: NotIn, values: [high]},
                  {scopeName: PriorityClass, operator: Exists}]}""").quota().orElseThrow().scopes())
                .containsExactly(
                        new QuotaScope.Deadline(false),
                        new QuotaScope.PriorityClassIn(Set.of("low", "batch"), true),
                        new QuotaScope.PriorityClassIn(Set.of("high"), false),
                        new QuotaScope.HasPriorityClass(true));
    }

    @Test
    void aQuotaWithAnotherScopeIsNotEnforcedAndSaysSo() {
        QuotaReader.Reading reading = read("""
                hard: {limits.nvidia.com/gpumem: 1}
                scopes: [BestEffort]""");
        assertThat(reading.quota()).isEmpty();
        assertThat(reading.problems())
                .containsExactly(
                        "Aliquot does not enforce this quota, because it does not know its scope BestEffort; it"
                                + " knows Terminating, NotTerminating and PriorityClass");
    }

    private static QuotaReader.Reading read(String spec) {
        return QuotaReader.read(YAML.unmarshal("""
                apiVersion: v1
                kind: ResourceQuota
                metadata: {name: gpus, namespace: team-a, uid: uid}
                spec:
                """ + spec.indent(2), ResourceQuota.class));
    }
}
