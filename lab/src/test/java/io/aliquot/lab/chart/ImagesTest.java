package io.aliquot.lab.chart;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The build context of the chart's images. */
class ImagesTest {
    /** A COPY from the checkout, not from another stage. */
    private static final Pattern COPY = Pattern.compile("(?m)^COPY (?!--from)(.+) \\S+$");

    /** The lab builds the images without Docker, so that no other test would notice. */
    @ParameterizedTest
    @ValueSource(strings = {"scheduler/Dockerfile", "device-plugin/Dockerfile"})
    void dockerignoreAdmitsEveryFileThatADockerfileCopies(String dockerfile) throws IOException {
        List<String> admitted = Files.readAllLines(Chart.root().resolve(".dockerignore")).stream()
                .filter(line -> line.startsWith("!"))
                .map(line -> line.substring(1))
                .toList();
        String text = Files.readString(Chart.root().resolve(dockerfile)).replace("\\\n", " ");

        assertThat(COPY.matcher(text)
                        .results()
                        .flatMap(copy -> Stream.of(copy.group(1).split(" +"))))
                .isNotEmpty()
                .allMatch(file -> admitted.stream().anyMatch(path -> file.equals(path) || file.startsWith(path + "/")));
    }
}
