/* A program that has always something to do on a GPU. */
#ifndef ALIQUOT_DUTY_TENANT_H
#define ALIQUOT_DUTY_TENANT_H

#include <stdint.h>

/* Until it is killed. Shapes and patterns: duty --help. */
_Noreturn void tenant_run(const char *shape, const char *pattern, unsigned long seed);

/* Of CLOCK_MONOTONIC, in ns. */
void tenant_sleep_until(uint64_t time);

#endif
