package io.aliquot.deviceplugin.shim;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

final class ShimTest {
    // printf library | sha256sum
    private static final String VERSION = "0.1.0-b718f1354f72";

    private final Path source;
    private final Path stateDir;

    ShimTest(@TempDir Path source, @TempDir Path stateDir) throws IOException {
        this.source = source;
        this.stateDir = stateDir;
        Files.writeString(source.resolve("libaliquot.so"), "library");
        Files.writeString(source.resolve("VERSION"), VERSION + "\n");
        Files.writeString(source.resolve("aliquot-hook"), "hook");
    }

    @Test
    void installsTheLibraryUnderItsVersionAndAPreloadFileWithItsPathInTheContainer() throws IOException {
        Shim shim = Shim.install(source, stateDir);

        assertThat(shim.version()).isEqualTo(VERSION);
        assertThat(shim.library())
                .isEqualTo(stateDir.resolve("shim").resolve(VERSION).resolve("libaliquot.so"));
        assertThat(shim.library()).hasContent("library");
        assertThat(shim.preload()).hasContent("/usr/local/aliquot/" + VERSION + "/libaliquot.so\n");
        assertThat(shim.libraryInContainer()).isEqualTo("/usr/local/aliquot/" + VERSION + "/libaliquot.so");
    }

    @Test
    void theHookIsExecutableByAllAndThatOfThisImage() throws IOException {
        Path hook = Shim.install(source, stateDir).hook();

        assertThat(hook).hasContent("hook").hasParent(stateDir.resolve("shim").resolve(VERSION));
        assertThat(PosixFilePermissions.toString(Files.getPosixFilePermissions(hook)))
                .isEqualTo("rwxr-xr-x");

        Files.writeString(source.resolve("aliquot-hook"), "mended hook");
        Shim.install(source, stateDir);

        assertThat(hook).hasContent("mended hook");
    }

    @Test
    void installingAgainKeepsTheFileThatRunningContainersHaveMapped() throws IOException {
        Path library = Shim.install(source, stateDir).library();
        Object inode = Files.getAttribute(library, "unix:ino");

        Shim.install(source, stateDir);

        assertThat(Files.getAttribute(library, "unix:ino")).isEqualTo(inode);
    }

    @Test
    void replacesADamagedLibraryByANewFile() throws IOException {
        Path library = Shim.install(source, stateDir).library();
        Files.writeString(library, "lib");
        try (var mapped = Files.newByteChannel(library)) {
            Shim.install(source, stateDir);

            assertThat(library).hasContent("library");
            assertThat(mapped.size()).isEqualTo(3);
        }
    }

    @Test
    void keepsAnOlderVersion() throws IOException {
        Path old = stateDir.resolve("shim/0.0.9-000000000000/libaliquot.so");
        Files.createDirectories(old.getParent());
        Files.writeString(old, "old");

        Shim.install(source, stateDir);

        assertThat(old).hasContent("old");
    }

    @Test
    void removesIncompleteFiles() throws IOException {
        Shim.install(source, stateDir);
        Path folder = stateDir.resolve("shim").resolve(VERSION);
        Files.writeString(folder.resolve(".libaliquot.so1.new"), "incomplete");

        Shim.install(source, stateDir);

        assertThat(folder.toFile().list()).containsExactlyInAnyOrder("libaliquot.so", "ld.so.preload", "aliquot-hook");
    }

    @Test
    void rejectsAVersionThatDoesNotMatchTheLibrary() throws IOException {
        Files.writeString(source.resolve("libaliquot.so"), "another");

        assertThatThrownBy(() -> Shim.install(source, stateDir))
                .hasMessageContaining("expected <release>-")
                .hasMessageContaining("found \"" + VERSION + "\"")
                .hasMessageContaining("pull it again");
    }

    @Test
    void rejectsAVersionThatIsAPath() throws IOException {
        Files.writeString(source.resolve("VERSION"), "../../" + VERSION);

        assertThatThrownBy(() -> Shim.install(source, stateDir)).hasMessageContaining("expected <release>-");
    }

    @Test
    void aMissingLibraryMeansADamagedImage() throws IOException {
        Files.delete(source.resolve("libaliquot.so"));

        assertThatThrownBy(() -> Shim.install(source, stateDir))
                .hasMessageContaining("libaliquot.so is missing")
                .hasMessageContaining("the image is damaged");
    }
}
