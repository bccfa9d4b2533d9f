/* What the private tables (cuda_export.c) share with contexts and with the handshake in one of them. */
#ifndef ALIQUOT_FAKE_CUDA_EXPORT_H
#define ALIQUOT_FAKE_CUDA_EXPORT_H

#include "cuda_abi.h"

/* Takes what is stored with a context that dies. With the driver's lock held. */
void storage_end_all(const struct CUctx_st *context);
/* Tells the owners of what was taken, who may call the driver again. Without the lock; answers result. */
CUresult storage_call_ended(CUresult result);

/* The handle of a device's primary context, whether that lives or not. */
CUresult primary_context_handle(CUcontext *context, CUdevice ordinal);

/* Addresses that are part of what the runtime asks about. */
struct handshake_tables {
    const void *runtime_interface, *handshakes;
    void (*handshake)(void);
};
CUresult handshake_answer(uint32_t version, uint64_t seconds, const struct handshake_tables *tables,
                          unsigned char answer[16]);

#endif
