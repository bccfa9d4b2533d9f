package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;

/** The functions of the lab's scripts. */
final class LabScripts {
    /**
     * @param success whether the exit status is 0
     * @param output without white space around it
     */
    record Result(boolean success, String output) {}

    private LabScripts() {}

    /** Runs a command with all functions; it must end within a minute of its output. */
    static Result bash(String command) {
        try {
            Process process = start(command);
            String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            assertThat(process.waitFor(1, TimeUnit.MINUTES)).isTrue();
            return new Result(process.exitValue() == 0, output.strip());
        } catch (IOException | InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    /** Starts a command with all functions. Its standard error is this process's. */
    static Process start(String command) throws IOException {
        return new ProcessBuilder("bash", "-c", ". ../lab/all.sh; " + command)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
    }
}
