/*
 * Charges CUDA contexts: the limit file's context= is charged with a process's first context on a device and released
 * with the last. The hooks count the contexts. A program can create one without calling a hook (libcudart uses private
 * tables), so the first charge on a device counts as the creation of its primary context.
 */
#ifndef ALIQUOT_CONTEXT_H
#define ALIQUOT_CONTEXT_H

#include <stdatomic.h>
#include <stdbool.h>

extern atomic_bool aliquot_context_charged[];

/* Slow path of aliquot_context_ensure_charged(). */
bool aliquot_context_charge_now(int device);

/* Charges this process's contexts on the device unless they are charged. False: no room for them. */
static inline bool aliquot_context_ensure_charged(int device) {
    return atomic_load_explicit(&aliquot_context_charged[device], memory_order_acquire) ||
           aliquot_context_charge_now(device);
}

/* Resets the state in a forked child. */
void aliquot_context_reset(void);

#endif
