/*
 * Looks up the driver's real functions, and replaces them by the hooks when a program looks them up.
 */
#ifndef ALIQUOT_LOOKUP_H
#define ALIQUOT_LOOKUP_H

#include "driver/hooks.h"

#include <stdatomic.h>
#include <stdbool.h>

/* The real functions by exported name; NULL: the driver does not have it. */
struct aliquot_real {
#define ALIQUOT_MEMBER(library, result, symbol, name, version, flags, parameters) result(*symbol) parameters;
#define ALIQUOT_CALLED_MEMBER(library, result, symbol, parameters) result(*symbol) parameters;
    ALIQUOT_HOOKS(ALIQUOT_MEMBER) ALIQUOT_CALLED(ALIQUOT_CALLED_MEMBER)
#undef ALIQUOT_MEMBER
#undef ALIQUOT_CALLED_MEMBER
};

/* Valid after aliquot_lookup_cuda() or aliquot_lookup_nvml() has returned true for the function's library. */
extern struct aliquot_real aliquot_real;

extern atomic_bool aliquot_lookup_cuda_done;
bool aliquot_lookup_cuda_now(void);

/* Makes sure that libcuda is loaded and its functions are resolved. False: it cannot be loaded. The two declarations
   above are its fast and slow path. */
static inline bool aliquot_lookup_cuda(void) {
    return atomic_load_explicit(&aliquot_lookup_cuda_done, memory_order_acquire) || aliquot_lookup_cuda_now();
}

/* Start of every CUDA hook: returns an error if the driver does not have the function. */
#define ALIQUOT_REQUIRE(function)                                                                                      \
    if (!aliquot_lookup_cuda() || aliquot_real.function == NULL) {                                                     \
        return CUDA_ERROR_NOT_SUPPORTED;                                                                               \
    }

/* The same for NVML. */
bool aliquot_lookup_nvml(void);

/* Address of a symbol in the global scope, or NULL. Call it after aliquot_lookup_cuda(). */
void *aliquot_lookup_global(const char *name);

#endif
