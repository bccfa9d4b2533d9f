package io.aliquot.scheduler.cluster;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Fence;
import io.aliquot.api.pods.Priority;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.pods.Vgpus;
import io.aliquot.scheduler.ledger.QuotaAmount;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

class AllocationAnnotationsTest {
    private static final String LONGEST_NAME = "n".repeat(63);

    @Test
    void whatIsKeptFreeIsMoreThanTheLongestThatIsAdded() {
        var vgpu = new Vgpu(
                "GPU-00000000-0000-0000-0000-000000000000",
                Gpu.LARGEST_MIB,
                100,
                CorePolicy.ELASTIC,
                Priority.HIGH,
                Gpu.LARGEST_MIB,
                true);
        // kube-scheduler's identity is its host's name, "_" and a UUID
        var fence = new Fence(LONGEST_NAME + "_00000000-0000-0000-0000-000000000000", Integer.MAX_VALUE);
        Map<String, String> ofPod =
                new TreeMap<>(AllocationAnnotations.annotations(Annotations.FENCE, fence, Map.of(), QuotaAmount.NONE));
        ofPod.put(Annotations.RESIZE_FENCE, fence.print());
        ofPod.put(Annotations.TOTAL_MEMORY_MIB, Long.toString(Long.MAX_VALUE));
        ofPod.put(Annotations.TOTAL_CORES, Long.toString(Long.MAX_VALUE));
        ofPod.put(Annotations.BUMPED_VERSION, Long.toString(Long.MAX_VALUE));
        Map<String, String> ofVgpu = Map.of(
                Annotations.vgpu(LONGEST_NAME), new Vgpus(List.of(vgpu)).print(),
                Annotations.visibleDevices(LONGEST_NAME), "v".repeat(VisibleDevices.MOST_LENGTH));

        assertThat(AllocationAnnotations.bytes(ofPod)).isLessThan(AllocationAnnotations.OF_POD);
        assertThat(AllocationAnnotations.bytes(ofVgpu)).isLessThan(AllocationAnnotations.OF_VGPU);
    }

    @Test
    void annotationsThatLeaveNoSpaceAreRefusedWithWhatToDo() {
        int most = AllocationAnnotations.MOST_BYTES - AllocationAnnotations.OF_POD - 2 * AllocationAnnotations.OF_VGPU;

        assertThatCode(() -> AllocationAnnotations.check(most, 2)).doesNotThrowAnyException();
        assertThatThrownBy(() -> AllocationAnnotations.check(most + 1, 2))
                .isInstanceOf(FormatException.class)
                .hasMessageEndingWith("shorten them, or move them to a ConfigMap");
    }
}
