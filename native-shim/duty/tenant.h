/* A tenant: a container, and the program in it, which launches kernels in an endless loop. */
#ifndef ALIQUOT_DUTY_TENANT_H
#define ALIQUOT_DUTY_TENANT_H

#include <stddef.h>
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

/* Creates a container in a folder: vgpu-NAME with its limits, regions/NAME, and agents/NAME with the limits' GPUs. */
void container_create(const char *folder, const char *name, const char *limits);

/* Programs that this process starts under the shim from then on are in that container. */
void container_enter(const char *folder, const char *name);

/* Becomes the arbiter of a folder's containers, which reads its lists from `input`. floor: its FLOOR, or NULL. */
_Noreturn void container_become_arbiter(const char *build, const char *folder, const char *floor, int input);

void container_write(const char *path, const void *content, size_t length);

/* Sleeps until a time of CLOCK_MONOTONIC in ns. */
void tenant_sleep_until(uint64_t time);

#endif
