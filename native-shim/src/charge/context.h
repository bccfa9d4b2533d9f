/*
 * Charges CUDA contexts: the limit file's context= is charged with a process's first context on a device and released
 * with the last. The hooks count the contexts. A program can create one without calling a hook (libcudart uses private
 * tables), so the first charge on a device counts as the creation of its primary context.
 */
#ifndef ALIQUOT_CONTEXT_H
#define ALIQUOT_CONTEXT_H

#include "driver/abi.h"

#include <stdatomic.h>
#include <stdbool.h>

extern atomic_bool aliquot_context_charged[];

/* Charges a context before it is created: the device's primary one, or another. False: no room. */
bool aliquot_context_charge(int device, bool primary);

/* Charges this process's contexts on the device unless they are charged. False: no room for them. */
static inline bool aliquot_context_ensure_charged(int device) {
    return atomic_load_explicit(&aliquot_context_charged[device], memory_order_acquire) ||
           aliquot_context_charge(device, true);
}

/* Records a new non-primary context that is charged, so that its destruction is recognized. */
void aliquot_context_created(CUcontext context, int device);

/* After the destruction of a context: releases its memory and, if it was recorded, the context. */
void aliquot_context_destroyed(CUcontext context);

/* Releases what was allocated in a context that has ended, except for memory pools. */
void aliquot_context_release_memory(CUcontext context);

/* The end of a context that was charged, or that was not created after all. With the last one on a device ends all that
   the process had there. */
void aliquot_context_release(int device, bool primary);

#endif
