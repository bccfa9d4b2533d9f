/* Memory of modules, for cuda_module.c. Called with the driver lock held. */
#ifndef ALIQUOT_FAKE_CUDA_ALLOC_H
#define ALIQUOT_FAKE_CUDA_ALLOC_H

#include "cuda_memory.h"

/*
 * Allocates memory for a module's variables on the context's device; with context NULL, host memory for managed
 * variables. Returns NULL if there is not enough.
 */
struct allocation *memory_allocate_globals(struct CUctx_st *context, size_t bytes);
void memory_free_globals(struct allocation *allocation);

#endif
