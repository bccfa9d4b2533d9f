package io.aliquot.lab.chart;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Objects;
import java.util.stream.Stream;

/**
 * A program, such as {@code kubectl}.
 *
 * @param kubeconfig of the API server that it asks; its folder is the program's home
 */
record Program(Path file, Path kubeconfig) {
    /** Returns the standard output; fails the test if the program fails. */
    String run(String... arguments) throws IOException, InterruptedException {
        return runWithStatus(0, arguments);
    }

    /** The same of a program that ends with this exit status. */
    String runWithStatus(int status, String... arguments) throws IOException, InterruptedException {
        Path home = Objects.requireNonNull(kubeconfig.getParent());
        Path errors = home.resolve("errors");
        var command =
                Stream.concat(Stream.of(file.toString()), Stream.of(arguments)).toList();
        var builder = new ProcessBuilder(command).redirectError(errors.toFile());
        builder.environment().put("KUBECONFIG", kubeconfig.toString());
        builder.environment().put("HOME", home.toString()); // no plugins or settings of the user's
        Process process = builder.start();
        String output = new String(process.getInputStream().readAllBytes(), UTF_8);
        if (process.waitFor() != status) {
            throw new AssertionError(command + " ended with " + process.exitValue() + ", expected " + status + "\n"
                    + output + Files.readString(errors));
        }
        return output;
    }
}
