package io.aliquot.scheduler.logging;

import io.aliquot.api.logging.LogLevelFile;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.boot.logging.LogLevel;
import org.springframework.boot.logging.LoggingSystem;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class LoggingConfiguration {
    private static final Logger LOG = LoggerFactory.getLogger(LoggingConfiguration.class);

    /** Of Aliquot's code only: at debug, libraries may log the headers of requests, and so tokens. */
    private static final String OURS = "io.aliquot";

    /** The level of the file applies from here on. */
    @Bean
    LogLevelFile logLevelFile(LoggingSystem logging) {
        var file = new LogLevelFile(
                LogLevelFile.MOUNTED,
                level -> {
                    logging.setLogLevel(OURS, LogLevel.valueOf(level.name()));
                    LOG.info("log level {}", level.print());
                },
                LOG::warn);
        file.read();
        return file;
    }
}
