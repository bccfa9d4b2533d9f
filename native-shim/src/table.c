/*
 * Open addressing with linear probing, at most 3/4 full; a removal closes its gap by moving later entries back, so
 * there are no tombstones, and 10,000 live allocations cost what 10 cost. 64 shards: the driver serialises allocations
 * anyway, shards only keep us from adding to that.
 */
#include "table.h"

#include "os.h"

#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>

#define SHARDS 64
#define SHARD_BITS 6
#define FIRST_CAPACITY 32

struct entry {
    uint64_t address; /* 0: free */
    struct aliquot_holding holding;
};

struct shard {
    _Alignas(64) atomic_bool locked;
    uint32_t capacity; /* a power of 2; 0: nothing was ever put */
    uint32_t count;
    struct entry *entries;
    struct entry first[FIRST_CAPACITY];
};

static struct shard shards[SHARDS];

/* Fibonacci hashing: the high bits are mixed best. */
static uint64_t hash_of(uint64_t address) {
    return address * UINT64_C(0x9e3779b97f4a7c15);
}

static struct shard *shard_of(uint64_t address) {
    return &shards[hash_of(address) >> (64 - SHARD_BITS)];
}

static uint32_t home_of(const struct shard *shard, uint64_t address) {
    return (uint32_t)(hash_of(address) >> (64 - SHARD_BITS - 32)) & (shard->capacity - 1);
}

static void lock(struct shard *shard) {
    for (int spins = 0; atomic_exchange_explicit(&shard->locked, true, memory_order_acquire); spins++) {
        if (spins > 64) {
            sched_yield();
        }
    }
}

static void unlock(struct shard *shard) {
    atomic_store_explicit(&shard->locked, false, memory_order_release);
}

/* The address's entry, or the free one where it would go. */
static uint32_t find(const struct shard *shard, uint64_t address) {
    uint32_t index = home_of(shard, address);
    while (shard->entries[index].address != 0 && shard->entries[index].address != address) {
        index = (index + 1) & (shard->capacity - 1);
    }
    return index;
}

static bool make_room(struct shard *shard) {
    if (shard->capacity == 0) {
        shard->entries = shard->first;
        shard->capacity = FIRST_CAPACITY;
        return true;
    }
    if (shard->count < shard->capacity / 4 * 3) {
        return true;
    }
    struct shard larger = {.capacity = shard->capacity * 4, .count = shard->count};
    larger.entries = aliquot_os_map(-1, larger.capacity * sizeof(struct entry));
    if (larger.entries == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < shard->capacity; i++) {
        if (shard->entries[i].address != 0) {
            larger.entries[find(&larger, shard->entries[i].address)] = shard->entries[i];
        }
    }
    if (shard->entries != shard->first) {
        aliquot_os_unmap(shard->entries, shard->capacity * sizeof(struct entry));
    }
    shard->entries = larger.entries;
    shard->capacity = larger.capacity;
    return true;
}

static void remove_at(struct shard *shard, uint32_t hole) {
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

bool aliquot_table_put(uint64_t address, const struct aliquot_holding *holding, struct aliquot_holding *old,
                       bool *replaced) {
    struct shard *shard = shard_of(address);
    *replaced = false;
    lock(shard);
    bool room = make_room(shard);
    if (room) {
        struct entry *entry = &shard->entries[find(shard, address)];
        if (entry->address == address) {
            *replaced = true;
            *old = entry->holding;
        } else {
            shard->count++;
        }
        entry->address = address;
        entry->holding = *holding;
    }
    unlock(shard);
    return room;
}

bool aliquot_table_take(uint64_t address, struct aliquot_holding *holding) {
    struct shard *shard = shard_of(address);
    bool known = false;
    lock(shard);
    if (shard->capacity > 0 && address != 0) {
        uint32_t index = find(shard, address);
        known = shard->entries[index].address == address;
        if (known) {
            *holding = shard->entries[index].holding;
            remove_at(shard, index);
        }
    }
    unlock(shard);
    return known;
}

void aliquot_table_take_context(const void *context, void (*each)(const struct aliquot_holding *holding)) {
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &shards[i];
        lock(shard);
        for (uint32_t index = 0; index < shard->capacity;) {
            struct entry *entry = &shard->entries[index];
            if (entry->address != 0 && entry->holding.context == context) {
                struct aliquot_holding holding = entry->holding;
                remove_at(shard, index); /* may move another one here: look again */
                each(&holding);
            } else {
                index++;
            }
        }
        unlock(shard);
    }
}

void aliquot_table_reset(void) {
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &shards[i];
        if (shard->capacity > 0) {
            /* A larger array stays mapped: the fork may have come in the middle of its exchange. */
            for (size_t index = 0; index < FIRST_CAPACITY; index++) {
                shard->first[index].address = 0;
            }
        }
        shard->capacity = 0;
        shard->count = 0;
        shard->entries = NULL;
        atomic_store(&shard->locked, false);
    }
}
