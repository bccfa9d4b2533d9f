package io.aliquot.deviceplugin.nvml;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** The fake driver that {@code native-shim} builds. Its GPUs are files in a folder that all tests of this JVM share. */
public final class FakeDriver {
    private static final Path BUILD = Path.of("..", "native-shim", "build", "fake-driver")
            .toAbsolutePath()
            .normalize();

    private final Path root =
            Path.of(System.getenv().getOrDefault("ALIQUOT_FAKE_GPUS", "")).resolveSibling("");

    /** Removes the GPUs of an earlier test. */
    public FakeDriver() throws IOException {
        assertThat(System.getenv())
                .as("a folder of this build, because its content is deleted")
                .containsKey("ALIQUOT_FAKE_GPUS");
        assertThat(BUILD.resolve("libnvidia-ml.so.1"))
                .as("the fake driver, built by ./mvnw -pl native-shim compile")
                .exists();
        if (Files.exists(root)) {
            try (Stream<Path> files = Files.walk(root)) {
                for (Path file : files.sorted((a, b) -> b.compareTo(a)).toList()) {
                    Files.delete(file);
                }
            }
        }
        Files.createDirectories(root.resolve("gpus"));
    }

    /** Installs GPUs, each {@code model;MiB;multiprocessors}. */
    public void install(String... gpus) throws IOException, InterruptedException {
        Path list = root.resolve("list");
        Files.write(list, List.of(gpus));
        run(
                "install",
                "--source",
                BUILD.toString(),
                "--cdi",
                root.resolve("cdi").toString(),
                "--gpus",
                list.toString(),
                "--node",
                "node1");
    }

    public void fail(String uuid, int xid) throws IOException, InterruptedException {
        run("fail", uuid, "--xid", Integer.toString(xid));
    }

    public void heal(String uuid) throws IOException, InterruptedException {
        run("heal", uuid);
    }

    /** Deletes a GPU's file: the GPU never existed. The command {@code remove} takes it out of the machine. */
    public void remove(String uuid) throws IOException {
        Files.delete(root.resolve("gpus").resolve(uuid));
    }

    /** Starts a program that uses the GPUs; its {@code --help} lists its steps. */
    public Process sample(String... steps) throws IOException {
        return sample(Map.of(), steps);
    }

    /** As {@link #sample(String...)}, with more environment variables. */
    public Process sample(Map<String, String> environment, String... steps) throws IOException {
        List<String> command =
                new ArrayList<>(List.of(BUILD.resolve("vgpu-sample").toString()));
        command.addAll(List.of(steps));
        var builder = new ProcessBuilder(command).redirectErrorStream(true);
        builder.environment().put("LD_LIBRARY_PATH", BUILD.toString());
        builder.environment().putAll(environment);
        return builder.start();
    }

    public String library() {
        return BUILD.resolve("libnvidia-ml.so.1").toString();
    }

    /** The folder of {@link #library}, for {@code LD_LIBRARY_PATH} of another process. */
    public String folder() {
        return BUILD.toString();
    }

    public Nvml open() throws NvmlException {
        return Nvml.open(library(), Path.of("/sys"));
    }

    /**
     * Runs a command of {@code aliquot-fake-driver}, such as {@code "recover", uuid, "reset"} or {@code "driver",
     * "--unload"}; its {@code --help} lists them. An unloaded driver stays so until it is loaded or a test begins.
     */
    public void run(String... arguments) throws IOException, InterruptedException {
        List<String> command =
                new ArrayList<>(List.of(BUILD.resolve("aliquot-fake-driver").toString()));
        command.addAll(List.of(arguments));
        command.addAll(List.of("--root", root.toString()));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertThat(process.waitFor()).as(output).isZero();
    }
}
