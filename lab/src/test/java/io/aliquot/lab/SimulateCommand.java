package io.aliquot.lab;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** {@code simulate}, run as a user would. */
final class SimulateCommand {
    private static final ObjectMapper JSON = new ObjectMapper();

    private SimulateCommand() {}

    /** What it reports; {@code folder} is for its file. */
    static JsonNode run(Lab lab, Path folder, String... arguments) throws IOException {
        Path json = folder.resolve("out.json");
        var command = new ArrayList<>(List.of(
                ProcessHandle.current().info().command().orElse("java"),
                "-jar",
                lab.root().resolve("scheduler/target/aliquot-scheduler.jar").toString(),
                "simulate",
                "--json",
                json.toString()));
        command.addAll(List.of(arguments));
        Lab.execute(Duration.ofSeconds(60), command).expectSuccess();
        return JSON.readTree(json.toFile());
    }
}
