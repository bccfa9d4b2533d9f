/*
 * Accounts for the device memory of this process and its container, and decides whether an allocation fits or ends in
 * CUDA_ERROR_OUT_OF_MEMORY.
 *
 * Reserve, then check: a process first adds the bytes to its word in the region, then sums the words of all processes,
 * and takes the bytes back if the sum exceeds the limit. Of two processes that race, at least one sees the bytes of the
 * other, so the limit is never exceeded, and no process waits for another. Both may see each other and take their bytes
 * back. Before an allocation is refused it is therefore tried again under the decision lock, until no other thread is
 * undecided.
 *
 * Devices are numbered in the order of the limit file's first reading; a number keeps its meaning while the process
 * lives.
 */
#ifndef ALIQUOT_ACCOUNT_H
#define ALIQUOT_ACCOUNT_H

#include "aliquot/agent.h"
#include "aliquot/region.h"
#include "limits/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* Applies the limits of a limit file: at activation and after each change of the file. A GPU that the file no longer
   names gets a memory limit of 0. False: a GPU has no entry in the region, and error says so; the others have their
   limits. Calls must not overlap. */
bool aliquot_account_set_limits(const struct aliquot_limits *limits, char error[ALIQUOT_LIMITS_ERROR]);

enum { ALIQUOT_COMPUTE_UNKNOWN, ALIQUOT_COMPUTE_FREE, ALIQUOT_COMPUTE_LIMITED };

/* Whether the GPU time of any device is limited: one of the above; UNKNOWN before limits were applied. */
extern int aliquot_account_compute;

/* Whether the GPU time of several devices is limited, so that kernels may wait for peers on another one. */
bool aliquot_account_computes_on_several(void);

/* Whether the container's GPU time is limited. An elastic container without cores is: it only borrows. Of device -1 it
   is not. */
bool aliquot_account_is_compute_limited(int device);

/* Device number of a GPU; -1: the limit file does not name it, so allocations on it are refused. */
int aliquot_account_device(const uint8_t uuid[16]);

/* The container's share of a device as limited now, except for memory, and the device's entries in the region. */
struct aliquot_share {
    uint32_t cores; /* percent of the GPU that limits GPU time; 0: no limit */
    enum aliquot_policy policy;
    uint64_t context_bytes; /* bytes charged for a process's CUDA contexts */
    struct aliquot_device *region;
    struct aliquot_charge *charges; /* by process slot */
};

struct aliquot_share aliquot_account_share(int device);

/* The GPU's entry in the agent's file, of zeros while the agent has said nothing. */
const struct aliquot_agent_device *aliquot_account_agent(int device);

/* Looks again for what the node agent says: an entry that it has added, and whether it still writes. Call it now and
   then. Calls must not overlap with each other or with aliquot_account_set_limits(). */
void aliquot_account_follow_agent(void);

/* Memory limit of the container on a device, in bytes. */
uint64_t aliquot_account_limit(int device);

/* Bytes that the container uses on a device now: the charges of its processes and what the node agent reports beyond
   them. */
uint64_t aliquot_account_used(int device);

/* Charges bytes to this process. False: the container would exceed its limit; nothing is charged. undecided: the thread
   may have charged more than it will keep, until it calls aliquot_account_decided(). For a bounded time other processes
   wait for it before they refuse an allocation. */
bool aliquot_account_reserve(int device, uint64_t bytes, bool undecided);
void aliquot_account_decided(int device);

/* Counts a refusal that the caller returns to the program. */
void aliquot_account_count_denied(int device);

/* Releases bytes charged before. */
void aliquot_account_release(int device, uint64_t bytes);

/* Charges bytes that this process already holds, even beyond the limit. Requires that the process has reserved
   before, so that it has a slot. */
void aliquot_account_force(int device, uint64_t bytes);

/* Whether this many more bytes fit, or may fit because a thread is undecided. */
bool aliquot_account_may_fit(int device, uint64_t bytes);

/* Sets how many of the charged bytes are the cost of CUDA contexts. */
void aliquot_account_set_context_bytes(int device, uint64_t bytes);

/* Resets the state in a forked child, which holds no device memory. */
void aliquot_account_reset(void);

#endif
