package io.aliquot.deviceplugin.guard;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.shim.Region;
import io.aliquot.deviceplugin.files.SlotFiles;
import io.aliquot.deviceplugin.kubelet.DeviceHolders;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.io.TempDir;

final class UnhookedFunctionsTest {
    private static final int UNHOOKED_FUNCTIONS_AT = 128; // region.h

    private final Path slots;
    private final AgentMetrics metrics = new AgentMetrics();
    private final RegionGuard guard;

    UnhookedFunctionsTest(@TempDir Path state) throws IOException {
        slots = Files.createDirectory(state.resolve("slots"));
        guard = new RegionGuard(
                SlotFiles.open(state),
                () -> new DeviceHolders.Known(List.of()),
                new RecentFindings(() -> 0),
                metrics,
                () -> 0);
    }

    @Test
    void countsAContainerWithUnhookedFunctions() throws IOException {
        Files.write(slots.resolve("slot-000"), withUnhookedFunctions(0));
        Files.write(slots.resolve("slot-001"), withUnhookedFunctions(3));

        guard.look();

        assertThat(metrics.print()).contains("aliquot_agent_containers_with_unhooked_functions 1.0");
    }

    @Test
    void doesNotCountASlotThatIsAllocatedAgain() throws IOException {
        Files.write(slots.resolve("slot-001"), withUnhookedFunctions(3));
        guard.look();

        Files.write(slots.resolve("slot-001"), Region.fresh());
        guard.look();

        assertThat(metrics.print()).contains("aliquot_agent_containers_with_unhooked_functions 0.0");
    }

    @Test
    @Timeout(value = 20, threadMode = ThreadMode.SEPARATE_THREAD) // nothing interrupts the opening of a FIFO
    void ignoresRegionsThatAContainerHasDamaged() throws Exception {
        Files.write(slots.resolve("slot-000"), new byte[0]);
        Files.write(slots.resolve("slot-001"), new byte[] {1, 2, 3});
        Files.write(slots.resolve("slot-002"), new byte[Region.SIZE]);
        Files.createDirectory(slots.resolve("slot-003"));
        Files.createSymbolicLink(
                slots.resolve("slot-004"), Files.write(slots.resolve("elsewhere"), withUnhookedFunctions(1)));
        Files.write(slots.resolve("slot-005"), withUnhookedFunctions(7));
        assertThat(new ProcessBuilder("mkfifo", slots.resolve("slot-006").toString())
                        .start()
                        .waitFor())
                .isZero();

        guard.look();

        assertThat(metrics.print()).contains("aliquot_agent_containers_with_unhooked_functions 1.0");
    }

    private static byte[] withUnhookedFunctions(int count) {
        byte[] region = Region.fresh();
        region[UNHOOKED_FUNCTIONS_AT] = (byte) count;
        return region;
    }
}
