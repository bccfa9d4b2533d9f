package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** How {@code ./aliquot} chooses the JDK, and the packages to install where there is no JDK or no Go. */
class PrerequisitesTest {
    @TempDir
    @SuppressWarnings("NullAway.Init")
    private Path folder;

    private String javaHome = "";

    @Test
    void newestJdkOfTheFolderWins() throws Exception {
        jdk("jvm/a", "21.0.11");
        jdk("jvm/b", "25.0.3");
        jdk("jvm/c", "9.0.4");

        assertThat(chosenJdk()).isEqualTo("jvm/b");
    }

    @Test
    void newerJdkWinsOverAnOlderJavaHome() throws Exception {
        javaHome = jdk("mine", "21.0.11");
        jdk("jvm/b", "25");

        assertThat(chosenJdk()).isEqualTo("jvm/b");
    }

    @Test
    void javaHomeWinsOverAnOlderJdk() throws Exception {
        javaHome = jdk("mine", "25.0.3");
        jdk("jvm/b", "25.0.2");

        assertThat(chosenJdk()).isEqualTo("mine");
    }

    @Test
    void javaHomeWinsOverAnEqualVersion() throws Exception {
        javaHome = jdk("mine", "25");
        jdk("jvm/b", "25");

        assertThat(chosenJdk()).isEqualTo("mine");
    }

    @Test
    void pathIsSearched() throws Exception {
        jdk("onpath", "26");
        jdk("jvm/b", "25");
        Files.createDirectories(folder.resolve("bin"));
        Files.createSymbolicLink(folder.resolve("bin/javac"), folder.resolve("onpath/bin/javac"));

        assertThat(chosenJdk()).isEqualTo("onpath");
    }

    @Test
    void jdkOlderThan21IsNotChosen() throws Exception {
        javaHome = jdk("mine", "17.0.15");
        jdk("jvm/b", "20.0.2");

        assertThat(chosenJdk()).isEmpty();
    }

    @Test
    void folderWithoutAJdkIsSkipped() throws Exception {
        Files.createDirectories(folder.resolve("jvm/empty/bin"));

        assertThat(chosenJdk()).isEmpty();
    }

    @Test
    void firstPackageThatIsNewEnoughIsOffered() throws Exception {
        script("bin/apt-cache", """
                case $2 in
                    openjdk-25-jdk-headless) echo '  Candidate: (none)' ;;
                    openjdk-21-jdk-headless) echo '  Candidate: 21.0.13.1+2-1~deb13u1' ;;
                    golang-go) echo '  Candidate: 2:1.19~1' ;;
                esac""");

        assertThat(bash("offered_package 21 openjdk-25-jdk-headless openjdk-21-jdk-headless"))
                .isEqualTo("openjdk-21-jdk-headless");
        assertThat(bash("offered_package 1.21 golang-go unknown || echo none")).isEqualTo("none");
        assertThat(bash("offered_package 1.19 golang-go")).isEqualTo("golang-go");
    }

    /** The chosen JDK's path below the test's folder; empty for none. */
    private String chosenJdk() throws IOException, InterruptedException {
        Files.createDirectories(folder.resolve("jvm"));
        String home = bash("find_jdk '" + folder.resolve("jvm") + "' || true");
        return home.isEmpty()
                ? ""
                : folder.toRealPath().relativize(Path.of(home).toRealPath()).toString();
    }

    private String bash(String command) throws IOException, InterruptedException {
        var builder = new ProcessBuilder("bash", "-c", ". ../lab/all.sh; " + command);
        builder.environment().put("PATH", folder.resolve("bin") + ":/usr/bin:/bin");
        builder.environment().put("JAVA_HOME", javaHome);
        builder.redirectError(ProcessBuilder.Redirect.INHERIT);
        Process process = builder.start();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertThat(process.waitFor(1, TimeUnit.MINUTES)).isTrue();
        assertThat(process.exitValue()).isZero();
        return output.strip();
    }

    /** A folder with a {@code javac} that prints a version. */
    private String jdk(String home, String version) throws IOException {
        script(home + "/bin/javac", "echo 'javac " + version + "'");
        return folder.resolve(home).toString();
    }

    private void script(String path, String text) throws IOException {
        Path file = folder.resolve(path);
        Files.createDirectories(file.getParent());
        Files.writeString(file, "#!/bin/sh\n" + text + "\n");
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rwxr-xr-x"));
    }
}
