package io.aliquot.deviceplugin;

import io.aliquot.deviceplugin.node.OneNodeApiServer;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;

/**
 * The node agent of the acceptance kit (docs/acceptance.md): as {@link DevicePlugin} starts it, with the settings of its
 * environment, but with the API server of {@link StandIns} and with folders in place of the host's and the image's.
 */
public final class AgentWithoutCluster {
    private AgentWithoutCluster() {}

    /**
     * Runs until SIGTERM.
     *
     * @param args the port of the API server, and the folder that has {@code proc}, {@code logs}, {@code cgroups},
     *     {@code cdi}, {@code image} and the file {@code token}
     */
    public static void main(String[] args) throws IOException {
        AgentLog.open();
        Path folder = Path.of(args[1]);
        System.exit(DevicePlugin.run(
                Settings.parse(System.getenv()),
                OneNodeApiServer.client(Integer.parseInt(args[0]), folder.resolve("token")),
                new NodeAgent.Folders(
                        folder.resolve("proc"),
                        folder.resolve("logs"),
                        folder.resolve("cgroups"),
                        List.of(folder.resolve("cdi")),
                        folder.resolve("image"))));
    }
}
