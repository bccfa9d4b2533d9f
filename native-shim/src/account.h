/*
 * How much device memory this process, and its container, hold, and whether there is room for more.
 *
 * Reserve, then check: the bytes are added first, then everybody's are summed, and the bytes are taken back if the sum
 * is over the limit. Of two that race, at least one sees the other, so the limit is never passed; no process waits for
 * another. Both may see each other and give way, so before an allocation is refused it is tried again alone, under the
 * decision lock, until nobody else is undecided.
 *
 * Devices are numbered as in the limit file's first reading; a number never changes its meaning.
 */
#ifndef ALIQUOT_ACCOUNT_H
#define ALIQUOT_ACCOUNT_H

#include "aliquot/region.h"
#include "limits.h"

#include <stdbool.h>
#include <stdint.h>

/* Takes over what a limit file says: first at activation, later with other limits. A GPU that it no longer names may
   hold nothing more. False, and a reason: a GPU has no place in the region. Not to be called by two threads at once. */
bool aliquot_account_set_limits(const struct aliquot_limits *limits, char error[ALIQUOT_LIMITS_ERROR]);

/* The number of a GPU; -1: the limit file names no such GPU, so nothing may be allocated on it. */
int aliquot_account_device(const uint8_t uuid[16]);

/* What of a device is granted besides memory, now, and where the device is in the region. */
struct aliquot_share {
    uint32_t cores; /* percent of the GPU; 0: no limit */
    enum aliquot_policy policy;
    uint64_t context_bytes; /* bytes that a process's contexts cost */
    struct aliquot_device *region;
    struct aliquot_charge *charges; /* by process slot */
};

struct aliquot_share aliquot_account_share(int device);

/* Bytes that the container may hold on a device. */
uint64_t aliquot_account_limit(int device);

/* Bytes that the container's processes hold on a device now; with them what the node agent sees it hold beyond that. */
uint64_t aliquot_account_used(int device);

/* Charges bytes to this process. False: the container would hold more than its limit; nothing is charged. */
bool aliquot_account_reserve(int device, uint64_t bytes);

/* Gives back what was reserved. */
void aliquot_account_release(int device, uint64_t bytes);

/* Charges what this process already holds, over the limit or not. A slot is there since something was reserved. */
void aliquot_account_force(int device, uint64_t bytes);

/* The same, and from that very moment until aliquot_account_decided() more may be charged than will be kept: nobody is
   refused meanwhile, for a bounded time. */
bool aliquot_account_reserve_undecided(int device, uint64_t bytes);
void aliquot_account_decided(int device);

/* Whether so many bytes more have room, or may have, since somebody is undecided. */
bool aliquot_account_may_fit(int device, uint64_t bytes);

/* Says how many of the bytes charged are contexts'. */
void aliquot_account_set_context_bytes(int device, uint64_t bytes);

/* In a forked child, which holds nothing. */
void aliquot_account_reset(void);

#endif
