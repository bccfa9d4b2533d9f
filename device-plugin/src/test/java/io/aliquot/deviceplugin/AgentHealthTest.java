package io.aliquot.deviceplugin;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.deviceplugin.cdi.CdiContainers;
import io.aliquot.deviceplugin.cdi.NvidiaDevices;
import io.aliquot.deviceplugin.cdi.StartHook;
import io.aliquot.deviceplugin.files.SlotFiles;
import io.aliquot.deviceplugin.kubelet.KubeletRegistrar;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.shim.Shim;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.time.InstantSource;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

final class AgentHealthTest {
    private static final StartHook HOOK = new StartHook(Path.of("/host/hook"), Path.of("/var/lib/kubelet/pods"), true);
    private long now = Long.MAX_VALUE - Duration.ofSeconds(1).toNanos(); // overflows in each test
    private final KubeletRegistrar registrar;
    private final AgentHealth health;

    AgentHealthTest(@TempDir Path sockets, @TempDir Path stateDir) throws IOException {
        var shim = new Shim(
                "1.0-abc", Path.of("/host/libaliquot.so"), Path.of("/host/ld.so.preload"), Path.of("/host/hook"));
        registrar = KubeletRegistrar.ofVgpus(
                sockets,
                SlotFiles.open(stateDir),
                shim,
                new CdiContainers(stateDir, stateDir, new NvidiaDevices(List.of()), HOOK, InstantSource.system()),
                (podUid, container) -> List.of(),
                new AgentMetrics(),
                InstantSource.system(),
                () -> now);
        health = new AgentHealth(registrar, () -> now);
    }

    @AfterEach
    void stop() {
        registrar.close();
    }

    @Test
    void isAliveUntilTheLoopHasNotEndedAPassForTwoMinutes() {
        now += Duration.ofMinutes(2).toNanos();
        assertThat(health.livenessProblems()).isEmpty();

        now += Duration.ofSeconds(1).toNanos();
        assertThat(health.livenessProblems()).containsExactly("the last pass of the agent's loop ended 121 s ago");

        health.passEnded(List.of(), false);
        assertThat(health.livenessProblems()).isEmpty();
    }

    @Test
    void isReadyWhenTheLastPassAndTheRegistrationHaveNoProblem() {
        assertThat(health.readinessProblems())
                .containsExactly("the agent is starting", "not registered with the kubelet yet");

        health.passEnded(List.of("NVML is not open yet"), false);

        assertThat(health.readinessProblems())
                .containsExactly("NVML is not open yet", "not registered with the kubelet yet");
        assertThat(health.isReady()).isFalse();
    }
}
