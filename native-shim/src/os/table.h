/*
 * Lookup table of this process's allocations: address or handle -> what was charged for it. It has 64 shards by address
 * with a lock each. Lookups and updates allocate no memory, except that a full shard maps a larger array. A zeroed
 * table is an empty one.
 */
#ifndef ALIQUOT_TABLE_H
#define ALIQUOT_TABLE_H

#include "os/lock.h"

#include <stdbool.h>
#include <stdint.h>

#define ALIQUOT_TABLE_SHARDS 64
#define ALIQUOT_TABLE_FIRST 32

struct aliquot_allocation {
    uint64_t bytes;
    void *owner;     /* the context that it was created in, whose end frees it; for pooled memory the pool */
    uint32_t device; /* as numbered in account.h */
    bool pooled;     /* the bytes are charged to the pool */
};

struct aliquot_table_entry {
    uint64_t address; /* 0: free */
    struct aliquot_allocation allocation;
};

struct aliquot_table_shard {
    _Alignas(64) struct aliquot_lock lock;
    uint32_t capacity; /* a power of 2; 0: never used */
    uint32_t count;
    struct aliquot_table_entry *entries;
    struct aliquot_table_entry first[ALIQUOT_TABLE_FIRST];
};

struct aliquot_table {
    struct aliquot_table_shard shards[ALIQUOT_TABLE_SHARDS];
};

/* Records an allocation. address is not 0. If it was known, *replaced is true and *old is the earlier record, whose
   free was not seen. False: no memory for a larger array; nothing changed. */
bool aliquot_table_put(struct aliquot_table *table, uint64_t address, const struct aliquot_allocation *allocation,
                       struct aliquot_allocation *old, bool *replaced);

/* Removes an address and returns its record. False: unknown. */
bool aliquot_table_remove(struct aliquot_table *table, uint64_t address, struct aliquot_allocation *allocation);

/* Removes all allocations of an owner, and calls each for every one. */
void aliquot_table_remove_owner(struct aliquot_table *table, const void *owner,
                                void (*each)(const struct aliquot_allocation *allocation));

/* The same for all allocations on a device. */
void aliquot_table_remove_device(struct aliquot_table *table, uint32_t device,
                                 void (*each)(const struct aliquot_allocation *allocation));

/* Empties the table whatever its state, in a forked child, where no other thread runs. */
void aliquot_table_reset(struct aliquot_table *table);

#endif
