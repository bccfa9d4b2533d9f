package io.aliquot.scheduler.server.ports;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;

/** Certificates for tests, made by the JDK's keytool. */
public final class KeyStores {
    public static final String ALIAS = "server";
    public static final String PASSWORD = "not-a-secret";

    private KeyStores() {}

    public static KeyStore selfSigned(String name) throws Exception {
        Path folder = Files.createTempDirectory("aliquot");
        Path file = folder.resolve("store.p12");
        try {
            Process keytool = new ProcessBuilder(
                            Path.of(System.getProperty("java.home"), "bin", "keytool")
                                    .toString(),
                            "-genkeypair",
                            "-alias",
                            ALIAS,
                            "-keyalg",
                            "EC",
                            "-dname",
                            "CN=" + name,
                            "-ext",
                            "san=dns:localhost",
                            "-storetype",
                            "PKCS12",
                            "-storepass",
                            PASSWORD,
                            "-keystore",
                            file.toString())
                    .redirectErrorStream(true)
                    .start();
            String said = new String(keytool.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            assertThat(keytool.waitFor()).as(said).isZero();
            return KeyStore.getInstance(file.toFile(), PASSWORD.toCharArray());
        } finally {
            Files.deleteIfExists(file);
            Files.delete(folder);
        }
    }
}
