package io.aliquot.lab;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * The tree uses one word for each concept (docs/glossary.md). The test fails where a retired word comes back, and names
 * the word to write instead.
 */
class VocabularyTest {
    private static final Path TABLE = Path.of("src/test/resources/vocabulary/retired.csv");

    /** Folders of builds, caches and version control, and files that quote the retired words. */
    private static final Set<String> SKIPPED =
            Set.of(".git", ".lab", "target", "build", "retired.csv", "VocabularyTest.java", "glossary.md");

    private static final Pattern TEXT_FILE = Pattern.compile(
            ".*\\.(java|c|h|def|map|S|cu|go|sh|py|md|ya?ml|tpl|txt|json|xml|properties|proto|html|js|css)"
                    + "|Dockerfile|aliquot|unpack|run|java\\.options|CMakeLists\\.txt|.*\\.cmake");

    private record Retired(String word, String replacement, Pattern pattern, boolean javaOnly) {
        static Retired parse(String line) {
            String[] column = line.split(",", 3);
            String word = column[1];
            return switch (column[0]) {
                case "type" ->
                    new Retired(
                            column[1],
                            column[2],
                            Pattern.compile("\\b(?:class|record|interface|enum) " + word + "\\b"),
                            true);
                case "method" ->
                    new Retired(column[1], column[2], Pattern.compile("\\b" + word + "\\b(?=\\(| =|;)"), true);
                case "phrase" ->
                    new Retired(
                            column[1],
                            column[2],
                            Pattern.compile("(?<![\\w\"])" + anyFirstLetter(word) + "(?!\\w)"),
                            false);
                default ->
                    throw new IllegalArgumentException("expected type, method or phrase, found \"" + line + "\"");
            };
        }
    }

    /** The word as it is and at the start of a sentence, but not in a name such as {@code BodyPublishers.noBody()}. */
    private static String anyFirstLetter(String word) {
        String first = word.substring(0, 1);
        return "[" + first + first.toUpperCase(Locale.ROOT) + "]" + word.substring(1);
    }

    @Test
    void noFileUsesARetiredWord() throws IOException {
        List<Retired> retired = table();
        var found = new ArrayList<String>();
        Path root = root();
        for (Path file : files(root)) {
            String text = Files.readString(file, UTF_8);
            found.addAll(findings(root.relativize(file).toString(), text, retired));
        }
        assertThat(found).as("retired words").isEmpty();
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', textBlock = """
            A.java  | final class Convoy {}           | A.java:1: "Convoy" is retired; say BindBatcher
            A.java  | void letGo() {}                 | A.java:1: "letGo" is retired; say release or releaseReservation
            b.c     | /* Nobody reads it. */          | b.c:1: "nobody" is retired; say the program or user that is meant
            d.md    | a Make-believe GPU              | d.md:1: "make-believe" is retired; say simulated
            """)
    void findsARetiredWordAndNamesItsReplacement(String file, String text, String finding) throws IOException {
        assertThat(findings(file, text, table())).containsExactly(finding);
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', textBlock = """
            A.java  | /** Types are called Line and Room elsewhere. */
            A.java  | new BindBatcher().await()
            d.md    | the convoy of letters
            A.java  | scheduler = "nobody"
            """)
    void leavesOtherWordsAlone(String file, String text) throws IOException {
        assertThat(findings(file, text, table())).isEmpty();
    }

    private static List<String> findings(String file, String text, List<Retired> retired) {
        var found = new ArrayList<String>();
        for (Retired word : retired) {
            if (word.javaOnly() && !file.endsWith(".java")) {
                continue;
            }
            Matcher matcher = word.pattern().matcher(text);
            while (matcher.find()) {
                long line = 1
                        + text.substring(0, matcher.start()).lines().count()
                        - (matcher.start() > 0 && text.charAt(matcher.start() - 1) != '\n' ? 1 : 0);
                found.add("%s:%d: \"%s\" is retired; say %s".formatted(file, line, word.word(), word.replacement()));
            }
        }
        return found;
    }

    private static List<Retired> table() throws IOException {
        try (Stream<String> lines = Files.lines(root().resolve("lab").resolve(TABLE))) {
            return lines.filter(line -> !line.startsWith("#"))
                    .map(Retired::parse)
                    .toList();
        }
    }

    private static List<Path> files(Path folder) throws IOException {
        var files = new ArrayList<Path>();
        try (Stream<Path> entries = Files.list(folder)) {
            for (Path entry : entries.sorted().toList()) {
                String name = entry.getFileName().toString();
                if (SKIPPED.contains(name) || Files.isSymbolicLink(entry)) {
                    continue;
                }
                if (Files.isDirectory(entry)) {
                    files.addAll(files(entry));
                } else if (TEXT_FILE.matcher(name).matches()) {
                    files.add(entry);
                }
            }
        }
        return files;
    }

    private static Path root() {
        Path folder = Path.of("").toAbsolutePath();
        return Stream.iterate(folder, Objects::nonNull, Path::getParent)
                .filter(parent -> Files.isExecutable(parent.resolve("aliquot")))
                .findFirst()
                .orElseThrow(() -> new IllegalStateException("there is no ./aliquot in " + folder + " or above it"));
    }
}
