package io.aliquot.scheduler;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class SchedulerApplicationTest {
    /** Regression: after the simulator got a jar of its own, "simulate" started the scheduler. */
    @ParameterizedTest
    @ValueSource(strings = {"simulate", "--help", "serve"})
    void anUnknownArgumentEndsTheProcessWithStatus2AndNamesTheSimulator(String argument)
            throws IOException, InterruptedException {
        Process process = new ProcessBuilder(List.of(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "-cp",
                        System.getProperty("java.class.path"),
                        SchedulerApplication.class.getName(),
                        argument))
                .redirectErrorStream(true)
                .start();
        try {
            assertThat(process.waitFor(60, TimeUnit.SECONDS))
                    .as("the process ends within 60 s")
                    .isTrue();
            assertThat(process.exitValue()).isEqualTo(2);
            assertThat(new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8))
                    .isEqualToIgnoringNewLines("The scheduler takes no argument \"" + argument
                            + "\"; the simulator is a program of its own: java -jar aliquot-simulator.jar --help");
        } finally {
            process.destroyForcibly();
        }
    }
}
