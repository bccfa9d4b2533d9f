/* A tenant: a program that launches kernels in an endless loop. */
#ifndef ALIQUOT_DUTY_TENANT_H
#define ALIQUOT_DUTY_TENANT_H

#include <stdint.h>

enum { TENANT_LATENCIES = 65536 };

/* In the file that ALIQUOT_DUTY_LATENCIES names: how long the work of a tenant took that waits for it, from its launch,
   or from the arrival of its request. */
struct tenant_latencies {
    uint32_t count;
    struct {
        float at; /* seconds since the tenant's first launch */
        float ms;
    } of[TENANT_LATENCIES];
};

/* Runs until it is killed. `duty --help` lists the shapes and patterns. */
_Noreturn void tenant_run(const char *shape, const char *pattern, unsigned long seed);

/* Sleeps until a time of CLOCK_MONOTONIC in ns. */
void tenant_sleep_until(uint64_t time);

#endif
