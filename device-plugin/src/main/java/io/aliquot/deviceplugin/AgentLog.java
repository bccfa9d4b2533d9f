package io.aliquot.deviceplugin;

import io.aliquot.api.logging.LogLevel;
import io.aliquot.api.logging.LogLevelFile;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * The process's log: java.util.logging, through {@link System.Logger}, to standard error. It names the levels error, warn and
 * debug SEVERE, WARNING and FINE. Fields refer to loggers because java.util.logging does not keep unreferenced ones.
 */
final class AgentLog {
    /** Libraries stay at info. */
    private static final Logger OURS = Logger.getLogger("io.aliquot");

    /** Logs at each connection that unix sockets have no keep-alive, so its level is raised. */
    private static final Logger NETTY_BOOTSTRAP = Logger.getLogger("io.grpc.netty.shaded.io.netty.bootstrap");

    private AgentLog() {}

    /** Sets the log up; call before the first message. */
    static void open() {
        // One line per message.
        System.setProperty("java.util.logging.SimpleFormatter.format", "%1$tFT%1$tT.%1$tL%1$tz %4$s %5$s%6$s%n");
        NETTY_BOOTSTRAP.setLevel(Level.SEVERE);
        // The loggers decide.
        Arrays.stream(Logger.getLogger("").getHandlers()).forEach(handler -> handler.setLevel(Level.ALL));
    }

    /** Sets the level of Aliquot's code to that of a file. */
    static LogLevelFile level(Path file) {
        return new LogLevelFile(
                file,
                level -> {
                    OURS.setLevel(level(level));
                    OURS.info("log level " + level.print());
                },
                OURS::warning);
    }

    private static Level level(LogLevel level) {
        return switch (level) {
            case ERROR -> Level.SEVERE;
            case WARN -> Level.WARNING;
            case INFO -> Level.INFO;
            case DEBUG -> Level.FINE;
        };
    }
}
