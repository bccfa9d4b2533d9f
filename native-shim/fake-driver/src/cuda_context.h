/* Contexts, for other parts of the driver. */
#ifndef ALIQUOT_FAKE_CUDA_CONTEXT_H
#define ALIQUOT_FAKE_CUDA_CONTEXT_H

#include "cuda_driver.h"

/* A new green context, alive, of a primary context; NULL without host memory. Called with the lock held. */
struct CUctx_st *context_new_green(struct CUctx_st *primary);

/* Returns the handle of a device's primary context, which need not be alive. */
CUresult primary_context_handle(CUcontext *context, CUdevice ordinal);

#endif
