package io.aliquot.deviceplugin;

import io.aliquot.api.FormatException;
import io.aliquot.deviceplugin.kubelet.KubeletRegistrar;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.metrics.MonitoringServer;
import io.aliquot.deviceplugin.node.ApiServerClient;
import io.aliquot.deviceplugin.node.NodeInformer;
import io.aliquot.deviceplugin.nvml.Nvml;
import io.aliquot.deviceplugin.shim.Shim;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * The process's entry. Exit codes: 0 after SIGTERM, 2 for wrong settings or a damaged image, 1 when only a new container
 * can help.
 */
public final class DevicePlugin {
    private static final Path SYS = Path.of("/sys");
    private static final Duration LOOK = Duration.ofSeconds(5);
    private static final int TRY_AGAIN = 1;
    private static final int WRONG_SETTINGS = 2;
    /** Says at every connection that unix sockets have no keep-alive. Held, since loggers are else collected. */
    private static final Logger NETTY_BOOTSTRAP = Logger.getLogger("io.grpc.netty.shaded.io.netty.bootstrap");

    private DevicePlugin() {}

    public static void main(String[] args) {
        // One line a message, before anybody logs.
        System.setProperty("java.util.logging.SimpleFormatter.format", "%1$tFT%1$tT.%1$tL%1$tz %4$s %5$s%6$s%n");
        NETTY_BOOTSTRAP.setLevel(Level.SEVERE);
        Settings settings;
        try {
            settings = Settings.parse(System.getenv());
        } catch (FormatException e) {
            System.err.println(e.getMessage());
            System.exit(WRONG_SETTINGS);
            return;
        }
        try {
            System.exit(run(settings));
        } catch (RuntimeException e) {
            e.printStackTrace(); // and don't live on as a process that does nothing but answer probes
            System.exit(TRY_AGAIN);
        }
    }

    private static int run(Settings settings) {
        var metrics = new AgentMetrics();
        try {
            ApiServerClient server = ApiServerClient.ofPod(System.getenv(), ApiServerClient.SERVICE_ACCOUNT);
            Shim shim = Shim.install(settings.shimSource(), settings.stateDir());
            var plugin = new KubeletRegistrar(settings.kubeletDir(), settings.stateDir(), shim, metrics);
            var agent = new NodeAgent(settings, () -> Nvml.open(settings.nvml(), SYS), plugin, metrics, LOOK);
            var monitoring = new MonitoringServer(settings.metricsPort(), metrics, agent::stuck, agent::waitingFor);
            Runtime.getRuntime().addShutdownHook(new Thread(agent::close, "shutdown"));
            boolean asked = agent.run(new NodeInformer(server, settings.nodeName(), agent::wake));
            monitoring.close();
            return asked ? 0 : TRY_AGAIN;
        } catch (IOException | FormatException e) {
            System.err.println(e.getMessage());
            return WRONG_SETTINGS;
        }
    }
}
