package io.aliquot.scheduler;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.webmvc.autoconfigure.error.ErrorMvcAutoConfiguration;

/** The scheduler's entry point. */
// Without Boot's error pages: package server answers errors in plain words.
@SpringBootApplication(exclude = ErrorMvcAutoConfiguration.class)
public class SchedulerApplication {
    public static void main(String[] args) {
        SpringApplication.run(SchedulerApplication.class, args);
    }
}
