/*
 * The driver's own functions, and what a program gets that looks one up: ours, where we have one.
 */
#ifndef ALIQUOT_LOOKUP_H
#define ALIQUOT_LOOKUP_H

#include "hooks.h"

#include <stdatomic.h>
#include <stdbool.h>

/* The real functions, by their exported names; NULL: this driver has none. */
struct aliquot_real {
#define ALIQUOT_MEMBER(library, result, symbol, name, version, flags, parameters) result(*symbol) parameters;
#define ALIQUOT_UNHOOKED_MEMBER(library, result, symbol, parameters) result(*symbol) parameters;
    ALIQUOT_HOOKS(ALIQUOT_MEMBER) ALIQUOT_UNHOOKED(ALIQUOT_UNHOOKED_MEMBER)
#undef ALIQUOT_MEMBER
#undef ALIQUOT_UNHOOKED_MEMBER
};

/* Valid after aliquot_lookup_cuda() or aliquot_lookup_nvml() has answered true for their library. */
extern struct aliquot_real aliquot_real;

extern atomic_bool aliquot_lookup_cuda_done;
bool aliquot_lookup_cuda_now(void);

/* False: the library can't be loaded. */
static inline bool aliquot_lookup_cuda(void) {
    return atomic_load_explicit(&aliquot_lookup_cuda_done, memory_order_acquire) || aliquot_lookup_cuda_now();
}

/* Every hook begins so: the driver's function, or an error that says that it has none. */
#define ALIQUOT_REQUIRE(function)                                                                                      \
    if (!aliquot_lookup_cuda() || aliquot_real.function == NULL) {                                                     \
        return CUDA_ERROR_NOT_SUPPORTED;                                                                               \
    }

bool aliquot_lookup_nvml(void);

/* What the whole program finds under a name; NULL: nothing. After aliquot_lookup_cuda(). */
void *aliquot_lookup_global(const char *name);

#endif
