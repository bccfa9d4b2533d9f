/* Spin lock between threads of one process, to be held for a few instructions. Zeroed memory is an unlocked lock. */
#ifndef ALIQUOT_LOCK_H
#define ALIQUOT_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

struct aliquot_lock {
    atomic_bool taken;
};

/* A waiting thread only reads: a write would take the cache line away from the holder. */
static inline void aliquot_lock(struct aliquot_lock *lock) {
    int spins = 0;
    while (atomic_exchange_explicit(&lock->taken, true, memory_order_acquire)) {
        do {
            if (++spins > 64) {
                sched_yield(); /* the holder may not be running */
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
