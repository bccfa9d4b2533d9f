/* A lock between this process's threads, for a few instructions at a time. Zeroed memory is an open one. */
#ifndef ALIQUOT_LOCK_H
#define ALIQUOT_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

struct aliquot_lock {
    atomic_bool taken;
};

static inline void aliquot_lock(struct aliquot_lock *lock) {
    for (int spins = 0; atomic_exchange_explicit(&lock->taken, true, memory_order_acquire); spins++) {
        if (spins > 64) {
            sched_yield(); /* its holder may not be running */
        }
    }
}

static inline void aliquot_unlock(struct aliquot_lock *lock) {
    atomic_store_explicit(&lock->taken, false, memory_order_release);
}

#endif
