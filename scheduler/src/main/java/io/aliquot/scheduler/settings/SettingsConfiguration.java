package io.aliquot.scheduler.settings;

import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.Environment;

@Configuration(proxyBeanMethods = false)
class SettingsConfiguration {
    @Bean
    Settings settings(Environment environment) {
        return Settings.read(environment::getProperty);
    }
}
