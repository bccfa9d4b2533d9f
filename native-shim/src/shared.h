/*
 * This process's place in the region: mapping and repairing the file, owning a process slot, cleaning up after the
 * dead. What the words mean is account.c's; the file's layout and locks are described in aliquot/region.h.
 */
#ifndef ALIQUOT_SHARED_H
#define ALIQUOT_SHARED_H

#include "aliquot/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ALIQUOT_SHARED_ERROR 160

/* Maps the region; NULL as path: memory of this process alone, of the same shape. An empty, short or damaged file is
   put right. False, and a reason: it can't be used. Once per process. */
bool aliquot_shared_open(const char *path, char error[ALIQUOT_SHARED_ERROR]);

/* The mapped region, after a successful open. */
struct aliquot_region *aliquot_shared_region(void);

/* The entry of a GPU, claimed if need be; -1: all entries are taken, or the UUID has a half of zeros. */
int aliquot_shared_device(const uint8_t uuid[16]);

/* This process's slot, taken at the first call; -1: all are owned by living processes. */
int aliquot_shared_slot(void);

/* The slot if there is one already, else -1. */
int aliquot_shared_slot_if_any(void);

/* Process slots that may hold charges: 0 to this, exclusive. */
uint32_t aliquot_shared_high_water(void);

/* Zeroes the charges of processes that are dead. */
void aliquot_shared_reap(void);

/* The slots whose owners live, in their order; how many. Without a file: this process's, if it has one. */
size_t aliquot_shared_live_slots(uint16_t slots[ALIQUOT_REGION_PROCESSES]);

/* Makes this thread the only one, of all processes that share the region, to be deciding; after a bounded wait it goes
   on even if it isn't, because the one that is may be stopped. To be ended in any case. */
void aliquot_shared_begin_decision(void);
void aliquot_shared_end_decision(void);

/* Around fork(): nothing half done is inherited, and the child owns nothing until it opens again. */
void aliquot_shared_before_fork(void);
void aliquot_shared_after_fork_in_parent(void);
void aliquot_shared_after_fork_in_child(void);

#endif
