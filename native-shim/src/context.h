/*
 * What contexts cost: the limit file's context= is charged with a process's first context on a device and given back
 * with its last. How many there are is told by who makes and ends them; since a program may make one in a way that
 * nobody sees (libcudart, by private tables), the first charge on a device counts as the making of its primary context.
 */
#ifndef ALIQUOT_CONTEXT_H
#define ALIQUOT_CONTEXT_H

#include <stdatomic.h>
#include <stdbool.h>

extern atomic_bool aliquot_context_charged[];

/* The slow part of the next function. */
bool aliquot_context_charge_unhooked(int device);

/* False: the device has a context of this process that is not charged, and there is no room for it. */
static inline bool aliquot_context_ensure_charged(int device) {
    return atomic_load_explicit(&aliquot_context_charged[device], memory_order_acquire) ||
           aliquot_context_charge_unhooked(device);
}

/* In a forked child. */
void aliquot_context_reset(void);

#endif
