/* The program in a container, which launches kernels in an endless loop; and calls of the driver. */
#ifndef ALIQUOT_DUTY_TENANT_H
#define ALIQUOT_DUTY_TENANT_H

#include "driver/abi.h"
#include "setup.h"

#include <stdint.h>

enum { TENANT_LATENCIES = 65536 };

/* How long the work of a tenant took that waits for it, from its launch, or from the arrival of its request. */
struct tenant_latencies {
    uint32_t count;
    struct {
        float at; /* seconds since the tenant's first launch */
        float ms;
    } of[TENANT_LATENCIES];
};

/* Runs until it is killed. `duty --help` lists the shapes and patterns. latencies: where it reports them, or NULL. */
_Noreturn void tenant_run(const char *shape, const char *pattern, unsigned seed, struct tenant_latencies *latencies);

/* An address in the driver; ends the process if the driver does not export it. */
void *tenant_find(const char *symbol);

/* CALL(cuInit, unsigned)(0) returns a CUresult. */
#define CALL(symbol, ...)                                                                                              \
    ({                                                                                                                 \
        static CUresult (*found_##symbol)(__VA_ARGS__);                                                                \
        if (found_##symbol == NULL) {                                                                                  \
            found_##symbol = (CUresult(*)(__VA_ARGS__))tenant_find(#symbol);                                           \
        }                                                                                                              \
        found_##symbol;                                                                                                \
    })

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        CUresult must_result = (call);                                                                                 \
        if (must_result != CUDA_SUCCESS) {                                                                             \
            setup_fail("error %d: %s", (int)must_result, #call);                                                       \
        }                                                                                                              \
    } while (0)

#endif
