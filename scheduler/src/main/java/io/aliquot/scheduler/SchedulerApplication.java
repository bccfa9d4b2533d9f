package io.aliquot.scheduler;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.webmvc.autoconfigure.error.ErrorMvcAutoConfiguration;

/** The entry point of the process. */
// Package server writes error responses; Spring Boot's error pages are not used.
@SpringBootApplication(exclude = ErrorMvcAutoConfiguration.class)
public class SchedulerApplication {
    public static void main(String[] args) {
        SpringApplication.run(SchedulerApplication.class, args);
    }
}
