package io.aliquot.lab;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Stream;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** A program with client-go's informers on resources of gpu.aliquot.io, {@code lab/informer}, and what it has printed. */
final class InformerProcess implements AutoCloseable {
    private final List<Entry> lines = new CopyOnWriteArrayList<>();
    private final Process process;

    /**
     * A line of the program.
     *
     * @param at milliseconds since 1970
     * @param event {@code request}, {@code synced}, {@code add}, {@code update} or {@code delete}
     * @param name with the namespace, if it has one, and a slash
     * @param version resourceVersion
     */
    record Entry(
            long at,
            String event,
            String resource,
            String name,
            String version,
            String phase,
            int objects,
            String url) {
        private static Entry parse(String text) {
            try {
                JsonNode json = new JsonMapper().readTree(text);
                return new Entry(
                        json.path("at").asLong(0),
                        json.path("event").asString(""),
                        json.path("resource").asString(""),
                        json.path("name").asString(""),
                        json.path("version").asString(""),
                        json.path("phase").asString(""),
                        json.path("objects").asInt(0),
                        json.path("url").asString(""));
            } catch (JacksonException e) {
                throw new IllegalStateException(text, e);
            }
        }
    }

    /** Starts one of this version of client-go, such as 1.35. */
    InformerProcess(Lab lab, String version, String... resources) {
        String program = Arrays.stream(lab.setting("INFORMERS").split(" ", -1))
                .filter(path -> path.contains("/informer-" + version + "-"))
                .findFirst()
                .orElseThrow();
        if (!Files.isExecutable(Path.of(program))) {
            throw new IllegalStateException("there is no " + program + "; ./aliquot build makes it");
        }
        try {
            process = new ProcessBuilder(
                            Stream.concat(Stream.of(program, lab.setting("KUBECONFIG")), Arrays.stream(resources))
                                    .toList())
                    .redirectError(ProcessBuilder.Redirect.INHERIT)
                    .start();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        Thread.ofPlatform().daemon().start(this::read);
    }

    private void read() {
        try (var output = process.inputReader(StandardCharsets.UTF_8)) {
            for (String line = output.readLine(); line != null; line = output.readLine()) {
                lines.add(Entry.parse(line));
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    List<Entry> lines() {
        return List.copyOf(lines);
    }

    /** The paths and queries of the requests for a resource, from a line on. */
    List<String> requests(String resource, int from) {
        return lines().stream()
                .skip(from)
                .filter(line ->
                        line.event().equals("request") && line.url().startsWith(GpuApiIT.GROUP + "/" + resource + "?"))
                .map(Entry::url)
                .toList();
    }

    /** The resourceVersions of the objects of a resource in a namespace, by name, as the informer knows them. */
    Map<String, String> objects(String resource, String namespace) {
        var objects = new TreeMap<String, String>();
        for (Entry line : lines()) {
            if (line.resource().equals(resource) && line.name().startsWith(namespace + "/")) {
                String name = line.name().substring(namespace.length() + 1);
                if (line.event().equals("delete")) {
                    objects.remove(name);
                } else {
                    objects.put(name, line.version());
                }
            }
        }
        return objects;
    }

    @Override
    public void close() {
        process.destroy();
    }
}
