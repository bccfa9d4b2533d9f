/* Which of the account's devices a call of the driver API means. Valid in mode ENFORCE, after aliquot_lookup_cuda(). */
#ifndef ALIQUOT_DEVICE_H
#define ALIQUOT_DEVICE_H

#include "abi.h"

/* The account's number of the calling thread's current device; -1: no context, or nothing was granted on its device.
   Costs the driver's cuCtxGetCurrent and a few nanoseconds; never more than that driver call while a stream captures.
 */
int aliquot_device_current(void);

/* The same, and the context; else why there is none: not initialised, no context. */
CUresult aliquot_device_of_current(CUcontext *context, int *device);

/* The account's number of a CUDA ordinal; -1: nothing was granted on it. The match is by UUID, so CUDA_VISIBLE_DEVICES
   in any form is right. */
int aliquot_device_of_ordinal(CUdevice ordinal);

/* A context has ended: its handle may come to mean another one. */
void aliquot_device_invalidate_contexts(void);

/* In a forked child: ordinals may mean other GPUs to it. */
void aliquot_device_reset(void);

#endif
