package io.aliquot.lab;

import static io.aliquot.lab.LabScripts.bash;
import static org.assertj.core.api.Assertions.assertThat;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.aliquot.lab.LabScripts.Result;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** {@code ALIQUOT_BINARIES}: the programs of the cluster come from a server or a folder, checked, instead of a compiler. */
class OfficialBinariesTest {
    private static final String API_SERVER = "/dl.k8s.io/release/v$kubernetes_version/bin/linux/amd64/kube-apiserver";

    /** Makes the files of the release hosts in the folder {@code hosts}, from a folder with the programs. */
    private static final String PUBLISH = """
            set -e
            link() { ln "$1" "$2" 2> /dev/null || cp "$1" "$2"; }
            kubernetes=hosts/dl.k8s.io/release/v$kubernetes_version/bin/linux/amd64
            etcd=hosts/github.com/etcd-io/etcd/releases/download/v$etcd_version
            mkdir -p $kubernetes $etcd hosts/get.helm.sh etcd-v$etcd_version-linux-amd64 linux-amd64
            for name in "${kubernetes_programs[@]}"; do
                link "$programs/$name" $kubernetes/$name
                sha256sum < $kubernetes/$name | cut -d ' ' -f 1 | tr -d '\\n' > $kubernetes/$name.sha256
            done
            link "$programs/etcd" etcd-v$etcd_version-linux-amd64/
            link "$programs/helm" linux-amd64/
            tar -c etcd-v$etcd_version-linux-amd64 | gzip -1 > $etcd/etcd-v$etcd_version-linux-amd64.tar.gz
            tar -c linux-amd64 | gzip -1 > hosts/get.helm.sh/helm-v$helm_version-linux-amd64.tar.gz
            (cd $etcd && echo "00 other-file" > SHA256SUMS && sha256sum *.tar.gz >> SHA256SUMS)
            (cd hosts/get.helm.sh && sha256sum *.tar.gz > helm-v$helm_version-linux-amd64.tar.gz.sha256sum)
            """;

    @TempDir
    @SuppressWarnings("NullAway.Init")
    private Path folder;

    @SuppressWarnings("NullAway.Init")
    private HttpServer server;

    private final Map<String, String> responses = new ConcurrentHashMap<>();
    private final Set<String> cut = ConcurrentHashMap.newKeySet();

    /** What a command has printed, and whether it has succeeded. */
    @BeforeEach
    void startServer() throws IOException {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", this::serve);
        server.start();
    }

    @AfterEach
    void stopServer() {
        server.stop(0);
    }

    @Test
    @LongTier.Only
    void programsOfAServerRun() throws Exception {
        String programs = bash("cluster_programs").output();
        assertThat(bash("cd '" + folder + "'; programs='" + programs + "'; " + PUBLISH))
                .isEqualTo(new Result(true, ""));

        assertThat(download(url()).success()).isTrue();

        String downloaded = bash(caching("cluster_programs")).output();
        assertThat(Path.of(downloaded).toFile().list())
                .containsExactlyInAnyOrder(
                        "etcd",
                        "helm",
                        "kube-apiserver",
                        "kube-controller-manager",
                        "kube-proxy",
                        "kube-scheduler",
                        "kubectl",
                        "kubelet");
        String version = bash("echo $kubernetes_version").output();
        assertThat(bash(downloaded + "/kubectl version --client").output()).contains("v" + version);
        assertThat(bash(downloaded + "/kube-apiserver --version").output()).contains("v" + version);
        assertThat(bash(downloaded + "/etcd --version").output())
                .contains(bash("echo $etcd_version").output());
        assertThat(bash(downloaded + "/helm version").output())
                .contains("v" + bash("echo ${helm_version%.*}").output(), "GoVersion");
    }

    @Test
    void programsOfAFolderAreTaken() throws Exception {
        Files.createDirectories(folder.resolve("programs"));
        bash("cd '" + folder
                + "'; for name in etcd helm \"${kubernetes_programs[@]}\"; do echo \"$name\" > programs/$name; done; "
                + "programs=programs; " + PUBLISH);

        Result result = download(folder.resolve("hosts").toString());

        assertThat(result.success()).as(result.output()).isTrue();
        Path downloaded = Path.of(bash(caching("cluster_programs")).output());
        assertThat(downloaded.resolve("helm")).hasContent("helm").isExecutable();
        assertThat(downloaded.resolve("etcd")).hasContent("etcd").isExecutable();
        assertThat(downloaded.resolve("kubelet")).hasContent("kubelet").isExecutable();
    }

    @Test
    void wrongChecksumIsRefused() throws Exception {
        responses.put(path(), "a program");
        responses.put(path() + ".sha256", "0123456789abcdef");

        Result result = download(url());

        assertThat(result.output())
                .contains("kube-apiserver has the SHA-256", "kube-apiserver.sha256 says 0123456789abcdef");
        assertNothingIsTaken(result);
    }

    @Test
    void programWithoutAChecksumIsRefused() throws Exception {
        responses.put(path(), "a program");

        assertNothingIsTaken(download(url()));
    }

    @Test
    void cutConnectionIsReported() throws Exception {
        responses.put(path(), "a program");
        cut.add(path());

        Result result = download(url());

        assertThat(result.output()).contains(url() + path() + " cannot be downloaded");
        assertNothingIsTaken(result);
    }

    @Test
    void missingProgramIsReported() throws Exception {
        Result result = download(url());

        assertThat(result.output()).contains("404", url() + path() + " cannot be downloaded");
        assertNothingIsTaken(result);
    }

    private void assertNothingIsTaken(Result result) throws Exception {
        assertThat(result.success()).isFalse();
        assertThat(Path.of(bash(caching("cluster_programs")).output())).doesNotExist();
    }

    private String url() {
        return "http://127.0.0.1:" + server.getAddress().getPort();
    }

    private static String path() throws Exception {
        return bash("echo \"" + API_SERVER + "\"").output();
    }

    private void serve(HttpExchange exchange) throws IOException {
        try (exchange) {
            String path = exchange.getRequestURI().getPath();
            Path file = folder.resolve("hosts" + path);
            if (responses.containsKey(path)) {
                byte[] body = responses.get(path).getBytes(StandardCharsets.UTF_8);
                exchange.sendResponseHeaders(200, cut.contains(path) ? body.length + 1L : body.length);
                exchange.getResponseBody().write(body);
            } else if (Files.isRegularFile(file)) {
                exchange.sendResponseHeaders(200, Files.size(file));
                Files.copy(file, exchange.getResponseBody());
            } else {
                exchange.sendResponseHeaders(404, -1);
            }
        }
    }

    private Result download(String binaries) throws Exception {
        return bash(caching(
                "mkdir -p \"$cache/programs\"; ALIQUOT_BINARIES='" + binaries + "' download_cluster_programs 2>&1"));
    }

    /** A command with a build cache of its own. */
    private String caching(String command) {
        return "cache='" + folder.resolve("cache") + "'; " + command;
    }
}
