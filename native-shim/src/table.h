/*
 * Which device memory this process holds: address -> what was charged for it. Sharded by address, a lock a shard;
 * looking up and changing allocate nothing, but a shard that fills up maps a larger array.
 */
#ifndef ALIQUOT_TABLE_H
#define ALIQUOT_TABLE_H

#include <stdbool.h>
#include <stdint.h>

struct aliquot_holding {
    uint64_t bytes;
    void *context;   /* it was made in; its end is the memory's */
    uint32_t device; /* as numbered in account.h */
};

/* Remembers address. True in *replaced: it was known, and *old is what it stood for: memory whose end was not seen.
   False: no memory for a larger array, nothing changed. */
bool aliquot_table_put(uint64_t address, const struct aliquot_holding *holding, struct aliquot_holding *old,
                       bool *replaced);

/* Forgets address. False: it is not known. */
bool aliquot_table_take(uint64_t address, struct aliquot_holding *holding);

/* Forgets all that was made in a context and calls each with it. */
void aliquot_table_take_context(const void *context, void (*each)(const struct aliquot_holding *holding));

/* Forgets everything, whatever state it is in: for a forked child, in which no other thread runs. */
void aliquot_table_reset(void);

#endif
