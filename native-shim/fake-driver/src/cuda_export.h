/* Context storage of the private export tables (cuda_export.c), for the destruction of contexts. */
#ifndef ALIQUOT_FAKE_CUDA_EXPORT_H
#define ALIQUOT_FAKE_CUDA_EXPORT_H

#include "cuda_abi.h"

/* Detaches the values stored with a context that is being destroyed. Called with the driver lock held. */
void context_storage_detach(const struct CUctx_st *context);

/*
 * Calls the destructors of the detached values, which may call the driver, and returns result. Called without the
 * lock.
 */
CUresult context_storage_run_destructors(CUresult result);

#endif
