/* A tenant: a program that launches kernels in an endless loop. */
#ifndef ALIQUOT_DUTY_TENANT_H
#define ALIQUOT_DUTY_TENANT_H

#include <stdint.h>

/* Runs until it is killed. `duty --help` lists the shapes and patterns. */
_Noreturn void tenant_run(const char *shape, const char *pattern, unsigned long seed);

/* Sleeps until a time of CLOCK_MONOTONIC in ns. */
void tenant_sleep_until(uint64_t time);

#endif
