/* Legacy IPC: memory of cuMemAlloc in other processes. Called with the driver lock held. */
#ifndef ALIQUOT_FAKE_CUDA_IPC_H
#define ALIQUOT_FAKE_CUDA_IPC_H

#include "cuda_memory.h"

/* Frees the IPC state of an exported or imported allocation that is about to be removed. */
void ipc_release(struct allocation *allocation);

#endif
