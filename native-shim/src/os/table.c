/*
 * Open addressing with linear probing, at most 3/4 full. A removal moves later entries back, so there are no
 * tombstones, and an operation costs the same with 10 and with 10,000 live allocations. 64 shards, because the driver
 * serializes allocations anyway; shards only keep the shim from adding contention.
 */
#include "os/table.h"

#include "os/os.h"

#include <stddef.h>

#define SHARD_BITS 6

/* Fibonacci hashing: the upper bits are mixed best. */
static uint64_t hash_of(uint64_t address) {
    return address * UINT64_C(0x9e3779b97f4a7c15);
}

static struct aliquot_table_shard *shard_of(struct aliquot_table *table, uint64_t address) {
    return &table->shards[hash_of(address) >> (64 - SHARD_BITS)];
}

static uint32_t home_of(const struct aliquot_table_shard *shard, uint64_t address) {
    return (uint32_t)(hash_of(address) >> (64 - SHARD_BITS - 32)) & (shard->capacity - 1);
}

/* Index of the address's entry, or of the free one where it belongs. */
static uint32_t find_entry(const struct aliquot_table_shard *shard, uint64_t address) {
    uint32_t index = home_of(shard, address);
    while (shard->entries[index].address != 0 && shard->entries[index].address != address) {
        index = (index + 1) & (shard->capacity - 1);
    }
    return index;
}

static bool ensure_capacity(struct aliquot_table_shard *shard) {
    if (shard->capacity == 0) {
        shard->entries = shard->first;
        shard->capacity = ALIQUOT_TABLE_FIRST;
        return true;
    }
    if (shard->count < shard->capacity / 4 * 3) {
        return true;
    }
    struct aliquot_table_shard larger = {.capacity = shard->capacity * 4, .count = shard->count};
    larger.entries = aliquot_os_map(-1, larger.capacity * sizeof(struct aliquot_table_entry));
    if (larger.entries == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < shard->capacity; i++) {
        if (shard->entries[i].address != 0) {
            larger.entries[find_entry(&larger, shard->entries[i].address)] = shard->entries[i];
        }
    }
    if (shard->entries != shard->first) {
        aliquot_os_unmap(shard->entries, shard->capacity * sizeof(struct aliquot_table_entry));
    }
    shard->entries = larger.entries;
    shard->capacity = larger.capacity;
    return true;
}

static void remove_at(struct aliquot_table_shard *shard, uint32_t hole) {
    uint32_t mask = shard->capacity - 1;
    for (uint32_t next = (hole + 1) & mask; shard->entries[next].address != 0; next = (next + 1) & mask) {
        uint32_t home = home_of(shard, shard->entries[next].address);
        if (((next - home) & mask) >= ((next - hole) & mask)) {
            shard->entries[hole] = shard->entries[next];
            hole = next;
        }
    }
    shard->entries[hole].address = 0;
    shard->count--;
}

bool aliquot_table_put(struct aliquot_table *table, uint64_t address, const struct aliquot_allocation *allocation,
                       struct aliquot_allocation *old, bool *replaced) {
    struct aliquot_table_shard *shard = shard_of(table, address);
    *replaced = false;
    aliquot_lock(&shard->lock);
    bool has_capacity = ensure_capacity(shard);
    if (has_capacity) {
        struct aliquot_table_entry *entry = &shard->entries[find_entry(shard, address)];
        if (entry->address == address) {
            *replaced = true;
            *old = entry->allocation;
        } else {
            shard->count++;
        }
        entry->address = address;
        entry->allocation = *allocation;
    }
    aliquot_unlock(&shard->lock);
    return has_capacity;
}

bool aliquot_table_remove(struct aliquot_table *table, uint64_t address, struct aliquot_allocation *allocation) {
    struct aliquot_table_shard *shard = shard_of(table, address);
    bool known = false;
    aliquot_lock(&shard->lock);
    if (shard->capacity > 0 && address != 0) {
        uint32_t index = find_entry(shard, address);
        known = shard->entries[index].address == address;
        if (known) {
            *allocation = shard->entries[index].allocation;
            remove_at(shard, index);
        }
    }
    aliquot_unlock(&shard->lock);
    return known;
}

/* Removes the allocations on a device, or with device NULL those of an owner. */
static void remove_matching(struct aliquot_table *table, const void *owner, const uint32_t *device,
                            void (*each)(const struct aliquot_allocation *allocation)) {
    for (size_t i = 0; i < ALIQUOT_TABLE_SHARDS; i++) {
        struct aliquot_table_shard *shard = &table->shards[i];
        aliquot_lock(&shard->lock);
        for (uint32_t index = 0; index < shard->capacity;) {
            struct aliquot_table_entry *entry = &shard->entries[index];
            bool matches = device != NULL ? entry->allocation.device == *device : entry->allocation.owner == owner;
            if (entry->address != 0 && matches) {
                struct aliquot_allocation allocation = entry->allocation;
                remove_at(shard, index); /* may move another entry here: check this index again */
                each(&allocation);
            } else {
                index++;
            }
        }
        aliquot_unlock(&shard->lock);
    }
}

void aliquot_table_remove_owner(struct aliquot_table *table, const void *owner,
                                void (*each)(const struct aliquot_allocation *allocation)) {
    remove_matching(table, owner, NULL, each);
}

void aliquot_table_remove_device(struct aliquot_table *table, uint32_t device,
                                 void (*each)(const struct aliquot_allocation *allocation)) {
    remove_matching(table, NULL, &device, each);
}

void aliquot_table_reset(struct aliquot_table *table) {
    for (size_t i = 0; i < ALIQUOT_TABLE_SHARDS; i++) {
        struct aliquot_table_shard *shard = &table->shards[i];
        if (shard->capacity > 0) {
            /* A larger array stays mapped: the parent may have been replacing it at the fork. */
            for (size_t index = 0; index < ALIQUOT_TABLE_FIRST; index++) {
                shard->first[index].address = 0;
            }
        }
        shard->capacity = 0;
        shard->count = 0;
        shard->entries = NULL;
        aliquot_unlock(&shard->lock);
    }
}
