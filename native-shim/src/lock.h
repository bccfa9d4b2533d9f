/* A lock between this process's threads, for a few instructions at a time. Zeroed memory is an open one. */
#ifndef ALIQUOT_LOCK_H
#define ALIQUOT_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

struct aliquot_lock {
    atomic_bool taken;
};

/* Who waits only reads: writing, each would take the holder's cache line away from it. */
static inline void aliquot_lock(struct aliquot_lock *lock) {
    int looks = 0;
    while (atomic_exchange_explicit(&lock->taken, true, memory_order_acquire)) {
        do {
            if (++looks > 64) {
                sched_yield(); /* its holder may not be running */
            } else {
#if defined(__x86_64__)
                __builtin_ia32_pause();
#elif defined(__aarch64__)
                __asm__ volatile("yield");
#endif
            }
        } while (atomic_load_explicit(&lock->taken, memory_order_relaxed));
    }
}

static inline void aliquot_unlock(struct aliquot_lock *lock) {
    atomic_store_explicit(&lock->taken, false, memory_order_release);
}

#endif
