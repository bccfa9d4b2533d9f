/* Values that NVIDIA's runtime stores with a context, by a private export table (cuda_export.c). */
#ifndef ALIQUOT_FAKE_CUDA_STORAGE_H
#define ALIQUOT_FAKE_CUDA_STORAGE_H

#include "cuda_abi.h"

typedef void (*storage_destructor)(CUcontext context, void *key, void *value);

/* The functions of the table. A context of NULL stands for the current one. */
CUresult context_storage_put(CUcontext context, void *key, void *value, storage_destructor destructor);
CUresult context_storage_delete(CUcontext context, void *key);
CUresult context_storage_get(void **value, CUcontext context, void *key);

/* Detaches the values stored with a context that is being destroyed. Called with the driver lock held. */
void context_storage_detach(const struct CUctx_st *context);

/*
 * Calls the destructors of the detached values, which may call the driver, and returns result. Called without the
 * lock.
 */
CUresult context_storage_run_destructors(CUresult result);

#endif
