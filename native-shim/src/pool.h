/*
 * Memory that comes from a pool: the device's and the program's own pools, and what graphs allocate. A pool is charged
 * by what it has reserved, used or not: the requested bytes are reserved before the driver is asked, and afterwards the
 * charge is trued up to what the driver says that the pool holds. Pools shrink when the host synchronises.
 */
#ifndef ALIQUOT_POOL_H
#define ALIQUOT_POOL_H

#include "abi.h"
#include "table.h"

#include <stdbool.h>

/* What a device's graphs hold is charged like a pool, whose making and end nobody sees. */
struct aliquot_pool;

/* The pool of a device's graphs; NULL: there is no memory to remember it. */
struct aliquot_pool *aliquot_pool_of_graphs(int device, CUdevice ordinal);

/* Around an operation that may take so many bytes more. Begin: false, and nothing reserved: no room. End: false: the
   pool took so much more than expected that the container is over its limit; it is charged. Landed: the operation is
   over, or undone. */
bool aliquot_pool_reserve_growth(struct aliquot_pool *pool, uint64_t bytes);
bool aliquot_pool_settle_growth(struct aliquot_pool *pool, uint64_t bytes);
void aliquot_pool_finish_growth(struct aliquot_pool *pool);

/* Memory from a pool was freed; at once: not in stream order. */
void aliquot_pool_freed(const struct aliquot_allocation *holding, bool at_once);

/* Charges what the driver says now. Costs nothing while no pool is known. */
void aliquot_pool_true_up(void);

/* Reserves bytes on a device, if need be after the pools have given back what they hold in vain. False: no room. */
bool aliquot_pool_reserve_on_device(int device, uint64_t bytes);

/* This process has no context on a device any more, so its pools hold nothing. They are not asked: their handles may
   mean nothing to the driver now. */
void aliquot_pool_last_context_ended(int device);

/* In a forked child. */
void aliquot_pool_reset(void);

#endif
