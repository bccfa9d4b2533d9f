/* Maps the current context or a CUDA ordinal to the device number of account.h. Valid in mode ENFORCE, after
   aliquot_lookup_cuda(). */
#ifndef ALIQUOT_DEVICE_H
#define ALIQUOT_DEVICE_H

#include "driver/abi.h"

/* The calling thread's current context, and its device number; -1: no context, or its device is not in the limit file.
   Otherwise returns the driver's error: not initialized, or no context. Costs the driver's cuCtxGetCurrent and a few
   nanoseconds. While a stream captures it calls only driver functions that are allowed then. */
CUresult aliquot_device_of_current(CUcontext *context, int *device);

/* CUDA ordinal of the device of a stream, which may be of another context than the current one; NULL and the handles of
   default streams mean the current context. Otherwise returns the driver's error. As cheap as
   aliquot_device_of_current() if the limit file names the device. */
CUresult aliquot_device_ordinal_of_stream(CUstream stream, CUdevice *ordinal);

/* The same of a context, which may be another than the current one. */
CUresult aliquot_device_ordinal_of_context(CUcontext context, CUdevice *ordinal);

/* Device number of a CUDA ordinal; -1: the limit file does not name the device. The match is by UUID, so it is right
   with any CUDA_VISIBLE_DEVICES. */
int aliquot_device_of_ordinal(CUdevice ordinal);

/* Invalidates the cache after a context has ended, because the driver may reuse its handle. */
void aliquot_device_invalidate_contexts(void);

#endif
