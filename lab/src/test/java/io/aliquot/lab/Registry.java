package io.aliquot.lab;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * crane's registry, by plain HTTP at 127.0.0.1. Its folder is its own: it knows the layers of all its repositories, and is asked
 * for none twice.
 */
final class Registry implements AutoCloseable {
    private final String address;
    private final Process process;

    private Registry(Path folder, String network) throws IOException {
        try (var free = new ServerSocket(0, 0, InetAddress.getLoopbackAddress())) {
            address = "127.0.0.1:" + free.getLocalPort();
        }
        Path disk = Files.createTempDirectory(folder, "registry");
        process = LabScripts.start(network + "$(release_program crane) registry serve --address " + address
                + " --disk '" + disk + "' > /dev/null 2>&1");
    }

    static Registry onMachine(Path folder) throws IOException {
        return new Registry(folder, "exec ");
    }

    /** One that the lab's nodes reach, and this machine does not. */
    static Registry inLab(Path folder) throws IOException {
        return new Registry(folder, "find_lab; exec \"${in_network[@]}\" ");
    }

    /** Host and port */
    String address() {
        return address;
    }

    @Override
    public void close() {
        process.destroy();
    }
}
