package io.aliquot.deviceplugin.nvml;

import static io.aliquot.testing.Await.await;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.deviceplugin.metrics.AgentMetrics;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
final class NvmlSessionTest {
    private static final String A100 = "NVIDIA A100-SXM4-80GB;81920;108";
    private static final Duration INTERVAL = Duration.ofMillis(20);

    private final FakeDriver driver = new FakeDriver();
    private final AtomicLong now =
            new AtomicLong(Long.MAX_VALUE - Duration.ofSeconds(1).toNanos()); // overflows in most tests
    private final AtomicInteger attempts = new AtomicInteger();
    private final AgentMetrics metrics = new AgentMetrics();
    private final List<String> uses = new ArrayList<>();
    private volatile Optional<String> loadedDriver = Optional.empty();
    private NvmlSession session = session(driver::open);

    NvmlSessionTest() throws IOException {}

    @AfterEach
    void stop() throws Exception {
        driver.run("driver", "--hang", "off");
        session.close();
    }

    @Test
    void readsTheGpusOnAThreadOfItsOwn() throws Exception {
        driver.install(A100);
        assertThat(session.latest()).isEqualTo(new NvmlReading.NotAsked("NVML is being opened"));

        session.start();

        await(() -> session.latest() instanceof NvmlReading.Gpus);
        NvmlReading.Gpus gpus = (NvmlReading.Gpus) session.latest();
        assertThat(gpus.listing().gpus()).hasSize(1);
        assertThat(gpus.listing().complete()).isTrue();
        assertThat(gpus.driver()).endsWith("-fake");
        assertThat(gpus.driverLoads()).isZero();
        assertThat(metrics.print()).contains("aliquot_agent_nvml_available 1.0");
    }

    @Test
    void retriesToOpenNvmlWithGrowingPauses() throws Exception {
        session = session(() -> {
            throw new NvmlException("no driver, attempt " + attempts.incrementAndGet());
        });
        session.start();

        awaitReason("no driver, attempt 1");
        now.addAndGet(Duration.ofSeconds(1).toNanos());
        awaitReason("no driver, attempt 2");
        now.addAndGet(Duration.ofSeconds(1).toNanos());
        awaitReadings(2);
        awaitReason("no driver, attempt 2");
        now.addAndGet(Duration.ofSeconds(1).toNanos());
        awaitReason("no driver, attempt 3");
        assertThat(session.restartReason()).isEmpty();
    }

    @Test
    void aReleasedDriverIsNotInUseByThisProcess() throws Exception {
        driver.install(A100);
        session.start();
        await(() -> session.latest() instanceof NvmlReading.Gpus);
        assertThat(driverFilesInUse()).isNotEmpty();

        session.release("the driver is being upgraded");

        await(() -> session.latest().equals(new NvmlReading.NotAsked("the driver is being upgraded")));
        assertThat(driverFilesInUse()).isEmpty();

        session.release("");
        await(() -> session.latest() instanceof NvmlReading.Gpus);
    }

    /** What of the driver this process has mapped or open. */
    private static List<String> driverFilesInUse() throws IOException {
        List<String> files = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of("/proc/self/maps"))) {
            if (line.contains("libnvidia-ml") || line.contains("/dev/nvidia") || line.contains("/gpus/GPU-")) {
                files.add(line);
            }
        }
        try (Stream<Path> open = Files.list(Path.of("/proc/self/fd"))) {
            for (Path file : open.toList()) {
                String target = target(file);
                if (target.matches(".*(/dev/nvidia|/gpus/GPU-).*")) {
                    files.add(target);
                }
            }
        }
        return files;
    }

    private static String target(Path link) throws IOException {
        try {
            return Files.readSymbolicLink(link).toString();
        } catch (NoSuchFileException e) {
            return ""; // closed since it was listed
        }
    }

    @Test
    void everyUseOfNvmlEndsBeforeNvmlIsClosed() throws Exception {
        driver.install(A100);
        session = session(driver::open, nvml -> {
            uses.add("begin");
            return () -> {
                nvml.gpus(); // NVML is open
                uses.add("end");
            };
        });
        session.start();
        await(() -> session.latest() instanceof NvmlReading.Gpus);

        session.release("a release");

        await(() -> session.latest() instanceof NvmlReading.NotAsked);
        assertThat(uses).containsExactly("begin", "end");
    }

    @Test
    void aDriverThatIsLoadedAnewIsCounted() throws Exception {
        driver.install(A100);
        session.start();
        await(() -> session.latest() instanceof NvmlReading.Gpus);

        driver.run("driver", "--unload");
        await(() -> session.latest() instanceof NvmlReading.Unavailable(String reason)
                && reason.contains("NVIDIA's kernel driver is not loaded"));
        driver.run("driver", "--load");
        await(() -> {
            now.addAndGet(Duration.ofSeconds(1).toNanos());
            return session.latest() instanceof NvmlReading.Gpus gpus && gpus.driverLoads() == 1;
        });
        assertThat(session.restartReason()).isEmpty();
    }

    @Test
    void aMismatchOfVersionsIsReportedAndRetried() throws Exception {
        driver.install(A100);
        driver.run("driver", "--mismatch", "on");
        session.start();
        await(() -> session.latest() instanceof NvmlReading.Unavailable(String reason)
                && reason.contains("not that of the loaded driver"));

        driver.run("driver", "--mismatch", "off");

        await(() -> {
            now.addAndGet(Duration.ofSeconds(1).toNanos());
            return session.latest() instanceof NvmlReading.Gpus;
        });
    }

    @Test
    void anotherVersionOfTheDriverNeedsARestart() throws Exception {
        driver.install(A100);
        session.start();
        await(() -> session.latest() instanceof NvmlReading.Gpus);
        String first = ((NvmlReading.Gpus) session.latest()).driver();

        session.release("an upgrade");
        await(() -> session.latest() instanceof NvmlReading.NotAsked);
        driver.run("driver", "--version", "600.1-fake");
        session.release("");

        await(() -> session.restartReason().isPresent());
        assertThat(session.restartReason())
                .contains("NVIDIA's driver was changed from version " + first + " to 600.1-fake");
    }

    @Test
    void aDriverThatIsLoadedWhileNvmlDoesNotAnswerNeedsARestartAfterAMinute() throws Exception {
        session = session(() -> Nvml.open("/nowhere/libnvidia-ml.so.1", Path.of("/sys")));
        session.start();
        await(() -> session.latest() instanceof NvmlReading.Unavailable);
        now.addAndGet(Duration.ofMinutes(9).toNanos());
        awaitReadings(2);
        assertThat(session.restartReason()).isEmpty();

        loadedDriver = Optional.of("550.54.15");
        awaitReadings(2);
        assertThat(session.restartReason()).isEmpty();
        now.addAndGet(Duration.ofSeconds(61).toNanos());

        await(() -> session.restartReason().isPresent());
        assertThat(session.restartReason())
                .contains("version 550.54.15 of NVIDIA's driver is loaded, and NVML does not answer");
    }

    @Test
    void whileACallHangsTheReadingSaysSoAndTheEndOfTheProcessIsNotDelayed() throws Exception {
        driver.install(A100);
        session.start();
        await(() -> session.latest() instanceof NvmlReading.Gpus);

        driver.run("driver", "--hang", "on");
        assertThat(session.latest()).isInstanceOf(NvmlReading.Gpus.class);
        await(() -> {
            now.addAndGet(Duration.ofSeconds(31).toNanos());
            return session.latest() instanceof NvmlReading.Unavailable(String reason)
                    && reason.contains("NVIDIA's driver hangs");
        });
        assertThat(metrics.print()).contains("aliquot_agent_nvml_hanging 1.0");

        driver.run("driver", "--hang", "off");
        await(() -> session.latest() instanceof NvmlReading.Gpus);
        assertThat(metrics.print()).contains("aliquot_agent_nvml_hanging 0.0");
    }

    @Test
    void closingDoesNotWaitForACallThatHangs() throws Exception {
        var returns = new CountDownLatch(1);
        var called = new CountDownLatch(1);
        session = session(() -> {
            called.countDown();
            try {
                returns.await();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            throw new NvmlException("late");
        });
        session.start();
        called.await();

        session.close();

        assertThat(returns.getCount()).isEqualTo(1);
        returns.countDown();
    }

    private NvmlSession session(NvmlSession.Opener opener, NvmlSession.User... users) {
        var withKernel = new NvmlSession.Opener() {
            @Override
            public Nvml open() throws NvmlException {
                return opener.open();
            }

            @Override
            public Optional<String> loadedDriver() {
                return loadedDriver;
            }
        };
        return new NvmlSession(withKernel, List.of(users), metrics, INTERVAL, () -> {}, now::get);
    }

    private void awaitReason(String reason) throws Exception {
        await(() -> session.latest().equals(new NvmlReading.Unavailable(reason)));
    }

    /** Waits until so many readings have begun and ended. */
    private void awaitReadings(int count) throws Exception {
        long last = session.readings() + 1 + count; // a reading may be under way
        await(() -> session.readings() >= last);
    }
}
