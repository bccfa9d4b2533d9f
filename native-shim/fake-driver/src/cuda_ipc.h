/* Memory of cuMemAlloc in other processes. With the driver's lock held. */
#ifndef ALIQUOT_FAKE_CUDA_IPC_H
#define ALIQUOT_FAKE_CUDA_IPC_H

#include "cuda_memory.h"

/* Frees what is kept about an allocation, which is about to go, that was exported or is an import. */
void ipc_forget(struct allocation *allocation);

#endif
