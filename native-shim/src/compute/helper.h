/*
 * The helper thread, which learns from finished batches if no launch comes (measure.h), and records probes.
 *
 * It starts when a batch is pending, sleeps 0.8 or 5 ms at a time on average, blocks all signals, is detached, and
 * exits after 100 ms without work, or when the process exits, before the driver's own exit handler. It is in capture
 * mode RELAXED all the time.
 */
#ifndef ALIQUOT_HELPER_H
#define ALIQUOT_HELPER_H

#include <stdint.h>

/* Mean time between probes while other processes use the GPU, in nanoseconds. */
#define ALIQUOT_HELPER_PROBE_INTERVAL_NS INT64_C(800000)

/* Starts the thread, unless it runs or cannot be started. Without it launches learn from the batches. */
void aliquot_helper_start(void);

#endif
