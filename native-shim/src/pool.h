/*
 * Charges memory pools: the device's, the program's own, and the memory that graphs allocate. A pool is charged what it
 * has reserved, used or not. An allocation that the unused part of the pool may hold is only followed by a question to
 * the driver whether the pool has grown. For any other, the requested bytes are reserved first, and afterwards the
 * charge is set to what the driver reports for the pool. Pools shrink when the host synchronizes.
 */
#ifndef ALIQUOT_POOL_H
#define ALIQUOT_POOL_H

#include "abi.h"
#include "table.h"

#include <stdbool.h>

/* A memory pool; also all graph memory of a device, which is charged like a pool without a handle. */
struct aliquot_pool;

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

/* Bracket an operation that may take this many bytes from a pool. aliquot_pool_reserve_growth(): false: no room, and
   nothing is reserved. aliquot_pool_settle_growth() replaces the reservation by what the driver reports; false: the
   pool grew beyond the limit, and is charged. aliquot_pool_finish_growth(): the operation is complete or undone. */
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

/* Resets the state in a forked child. */
void aliquot_pool_reset(void);

#endif
