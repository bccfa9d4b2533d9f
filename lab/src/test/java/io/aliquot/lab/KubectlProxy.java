package io.aliquot.lab;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A running {@code kubectl proxy} for the web page. */
final class KubectlProxy implements AutoCloseable {
    private static final String PAGE = "/apis/gpu.aliquot.io/v1alpha1/ui/";
    private static final Pattern ADDRESS = Pattern.compile("127\\.0\\.0\\.1:\\d+");

    private final Process process;
    private final String origin;

    private KubectlProxy(Process process, String origin) {
        this.process = process;
        this.origin = origin;
    }

    /** {@code ./aliquot proxy}: with the administrator's rights. */
    static KubectlProxy ofLab(Lab lab) throws IOException {
        int port;
        try (var free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
        return start(lab, "proxy", "--port", Integer.toString(port));
    }

    /** With the rights of the user in a kubeconfig. */
    static KubectlProxy of(Lab lab, Path kubeconfig) throws IOException {
        return start(lab, "kubectl", "--kubeconfig", kubeconfig.toString(), "proxy", "--port=0");
    }

    private static KubectlProxy start(Lab lab, String... arguments) throws IOException {
        var command = new ArrayList<>(List.of(lab.root().resolve("aliquot").toString()));
        command.addAll(List.of(arguments));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        var reader = new BufferedReader(new InputStreamReader(process.getInputStream(), UTF_8));
        var output = new StringBuilder();
        String line;
        while ((line = reader.readLine()) != null) {
            Matcher address = ADDRESS.matcher(line);
            if (address.find()) {
                return new KubectlProxy(process, "http://" + address.group());
            }
            output.append(line).append('\n');
        }
        throw new AssertionError("expected the address of a proxy, found " + output);
    }

    String origin() {
        return origin;
    }

    /** The address of a view. */
    String page(String view) {
        return origin + PAGE + view;
    }

    @Override
    public void close() {
        process.descendants().forEach(ProcessHandle::destroyForcibly);
        process.destroyForcibly();
    }
}
