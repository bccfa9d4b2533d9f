/*
 * Charges memory pools: the device's, the program's own, and the memory that graphs allocate. A pool is charged what it
 * has reserved, used or not. An allocation that the unused part of the pool may hold is only followed by a question to
 * the driver whether the pool has grown. For any other, the requested bytes are reserved first, and afterwards the
 * charge is set to what the driver reports for the pool. Pools shrink when the host synchronizes.
 */
#ifndef ALIQUOT_POOL_H
#define ALIQUOT_POOL_H

#include "driver/abi.h"
#include "os/table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum aliquot_pool_kind {
    ALIQUOT_POOL_CHARGED,   /* charged to its device */
    ALIQUOT_POOL_UNCHARGED, /* host memory, or imported */
    ALIQUOT_POOL_OF_GRAPHS, /* graph memory of a device; has no handle */
    ALIQUOT_POOL_DESTROYED, /* destroyed, but holds memory until its last allocation is freed; has no handle */
};

/* A memory pool; also all graph memory of a device, which is charged like a pool without a handle. */
struct aliquot_pool {
    int device; /* as numbered in account.h; -1: the limit file does not name the device */
    CUdevice ordinal;
    bool created_by_program; /* the program created it and may destroy it */
    _Atomic enum aliquot_pool_kind kind;
    _Atomic(CUmemoryPool) handle;
    struct aliquot_pool *next;

    pthread_mutex_t mutex;    /* guards the charge */
    _Atomic uint64_t charged; /* bytes: the driver's last figure plus in_flight */
    uint64_t in_flight;       /* bytes reserved for calls that have not returned */
    unsigned rejecting;       /* operations that grew the pool beyond the limit and are being undone */
    /* What the mutex publishes, for operations that do not lock it. */
    atomic_uint version;   /* odd while it is locked */
    atomic_uint refusals;  /* operations that have grown the pool beyond the limit */
    _Atomic uint64_t held; /* charged bytes that are not in flight; 0 while an operation is being rejected */

    _Alignas(64) atomic_uint growing; /* operations that may have grown the pool and have not charged it yet */
    _Atomic int64_t live_bytes;       /* of allocations not freed */
};

/* Pool of a device's graph memory; NULL: there is no memory for the record. */
struct aliquot_pool *aliquot_pool_of_graphs(int device, CUdevice ordinal);

/* An operation that may grow a pool. */
struct aliquot_growth {
    struct aliquot_pool *pool;
    uint64_t reserved; /* bytes, until it is settled */
    unsigned refusals; /* of the pool when the operation began */
    bool undecided;    /* the thread is undecided (account.h) until the growth is settled */
    bool refused;      /* the pool grew beyond the limit */
};

/* Bracket an operation, on a device whose contexts are charged (context.h), that may take this many bytes from a pool.
   aliquot_pool_reserve_growth(): false: no room, and nothing is reserved. aliquot_pool_settle_growth() replaces the
   reservation by what the driver reports; false: the pool grew beyond the limit, and is charged.
   aliquot_pool_finish_growth(): the operation is complete or undone. */
bool aliquot_pool_reserve_growth(struct aliquot_growth *growth, struct aliquot_pool *pool, uint64_t bytes);
bool aliquot_pool_settle_growth(struct aliquot_growth *growth);
void aliquot_pool_finish_growth(const struct aliquot_growth *growth);

/* Records a free of memory from a pool. at_once: not in stream order. */
void aliquot_pool_freed(const struct aliquot_allocation *allocation, bool at_once);

/* Sets the charges of all pools to what the driver reports. Free while no pool is known. */
void aliquot_pool_update_charges(void);

/* Reserves bytes on a device. If they do not fit, trims the pools first. False: no room. */
bool aliquot_pool_reserve_on_device(int device, uint64_t bytes);

/* Call when this process's last context on a device has ended: its pools hold nothing. The driver is not asked about
   them, because their handles may be invalid. */
void aliquot_pool_last_context_ended(int device);

/* Trims of graph memory so far: graphs may have lost the memory that they kept for the next launch. Starts at 1. */
extern atomic_uint aliquot_pool_graph_trims;

/* The pool's entry if the handle was used before, or NULL. */
struct aliquot_pool *aliquot_pool_cached(CUmemoryPool handle);

/* The pool's entry, which is added if it is unknown: a pool of the device unless kind says otherwise. new: the program
   has just created the pool. NULL: there is no memory for the record. */
struct aliquot_pool *aliquot_pool_find(CUmemoryPool handle, enum aliquot_pool_kind kind, CUdevice ordinal, bool new);

/* Bracket the destruction of a pool. One that is destroyed while memory of it is in use exists until that is freed, and
   keeps its charge until it is empty. kind: the pool's before; destroyed: the driver has destroyed it. */
struct aliquot_pool *aliquot_pool_begin_destroy(CUmemoryPool handle, enum aliquot_pool_kind *kind);
void aliquot_pool_end_destroy(struct aliquot_pool *pool, CUmemoryPool handle, enum aliquot_pool_kind kind,
                              bool destroyed);

/* Asks the driver how many bytes the pool holds. False: it does not say. */
bool aliquot_pool_reserved_bytes(const struct aliquot_pool *pool, uint64_t *reserved);

/* Counts a free, or an allocation that failed. The last of them removes a destroyed pool. */
void aliquot_pool_count_free(struct aliquot_pool *pool, uint64_t bytes);

/* Sets the charge of a pool to what the driver reports. */
void aliquot_pool_update_charge(struct aliquot_pool *pool);

/* Trims the pools of a device until this many bytes fit. False: they cannot fit. */
bool aliquot_pool_trim_device(int device, uint64_t bytes);

#endif
