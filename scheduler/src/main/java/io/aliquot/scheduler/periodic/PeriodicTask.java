package io.aliquot.scheduler.periodic;

import java.time.Duration;

/**
 * Work that {@link PeriodicTasks} repeats.
 *
 * @param name in logs and in the answer of {@code /livez}
 * @param interval between the end of one run and the start of the next
 */
public record PeriodicTask(String name, Duration interval, Runnable work) {}
