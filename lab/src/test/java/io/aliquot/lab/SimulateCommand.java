package io.aliquot.lab;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The simulator's program, run as a user runs it. */
final class SimulateCommand {
    private static final JsonMapper JSON = new JsonMapper();

    private SimulateCommand() {}

    /** Runs the program and returns its JSON report, which it writes into {@code folder}. */
    static JsonNode run(Lab lab, Path folder, String... arguments) throws IOException {
        Path json = folder.resolve("out.json");
        var command = new ArrayList<>(List.of(
                ProcessHandle.current().info().command().orElse("java"),
                "-jar",
                lab.root().resolve("simulator/target/aliquot-simulator.jar").toString(),
                "--json",
                json.toString()));
        command.addAll(List.of(arguments));
        Lab.execute(Duration.ofSeconds(60), command).expectSuccess();
        return JSON.readTree(json.toFile());
    }
}
