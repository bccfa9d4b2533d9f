/*
 * What this process holds: address or handle -> what was charged for it. Sharded by address, a lock a shard; looking up
 * and changing allocate nothing, but a shard that fills up maps a larger array. A zeroed table is an empty one.
 */
#ifndef ALIQUOT_TABLE_H
#define ALIQUOT_TABLE_H

#include "lock.h"

#include <stdbool.h>
#include <stdint.h>

#define ALIQUOT_TABLE_SHARDS 64
#define ALIQUOT_TABLE_FIRST 32

struct aliquot_allocation {
    uint64_t bytes;
    void *owner;     /* the context that it was made in, whose end is its end; for what comes from a pool: the pool */
    uint32_t device; /* as numbered in account.h */
    bool pooled;     /* the bytes are charged with the pool */
};

struct aliquot_table_entry {
    uint64_t address; /* 0: free */
    struct aliquot_allocation allocation;
};

struct aliquot_table_shard {
    _Alignas(64) struct aliquot_lock lock;
    uint32_t capacity; /* a power of 2; 0: nothing was ever put */
    uint32_t count;
    struct aliquot_table_entry *entries;
    struct aliquot_table_entry first[ALIQUOT_TABLE_FIRST];
};

struct aliquot_table {
    struct aliquot_table_shard shards[ALIQUOT_TABLE_SHARDS];
};

/* Remembers address, which is not 0. True in *replaced: it was known, and *old is what it stood for: something whose
   end was not seen. False: no memory for a larger array, nothing changed. */
bool aliquot_table_put(struct aliquot_table *table, uint64_t address, const struct aliquot_allocation *allocation,
                       struct aliquot_allocation *old, bool *replaced);

/* Forgets address. False: it is not known. */
bool aliquot_table_remove(struct aliquot_table *table, uint64_t address, struct aliquot_allocation *allocation);

/* Forgets all that one owner has and calls each with it. */
void aliquot_table_remove_owner(struct aliquot_table *table, const void *owner,
                                void (*each)(const struct aliquot_allocation *allocation));

/* Forgets everything, whatever state it is in: for a forked child, in which no other thread runs. */
void aliquot_table_reset(struct aliquot_table *table);

#endif
