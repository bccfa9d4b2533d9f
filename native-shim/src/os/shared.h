/*
 * This process's use of the region: maps and repairs the file, owns a process slot, releases the charges of dead
 * processes. account.c interprets the words; aliquot/region.h describes the layout and the locks.
 */
#ifndef ALIQUOT_SHARED_H
#define ALIQUOT_SHARED_H

#include "aliquot/region.h"
#include "os/os.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ALIQUOT_SHARED_ERROR 160

/* Maps the region. With a path of NULL it is private memory of the same layout. An empty, short or damaged file is
   repaired. False: it cannot be used, or is not the expected file (NULL: any), and error says why. Call it once per
   process. */
bool aliquot_shared_open(const char *path, const struct aliquot_os_file *expected, char error[ALIQUOT_SHARED_ERROR]);

/* The mapped region. Valid after a successful open. */
struct aliquot_region *aliquot_shared_region(void);

/* Index of the GPU's entry, which is claimed if needed; -1: all entries are in use, or the UUID has a half of zeros. */
int aliquot_shared_device(const uint8_t uuid[16]);

/* This process's slot, claimed at the first call; -1: living processes own all slots, which the region then tells the
   node agent, and one line on standard error the user. */
int aliquot_shared_slot(void);

/* This process's slot if it has one, else -1. */
int aliquot_shared_slot_if_any(void);

/* Number of process slots that may hold charges. */
uint32_t aliquot_shared_high_water(void);

/* Zeroes the charges of dead processes. */
void aliquot_shared_reap(void);

/* Lists the slots of living processes in ascending order, and returns their number. Without a file only this
   process's slot, if it has one. */
size_t aliquot_shared_live_slots(uint16_t slots[ALIQUOT_REGION_PROCESSES]);

/* Begins a decision: acquires the decision lock, which excludes all other threads and processes that share the
   region. After a bounded wait it returns without the lock, because its holder may be stopped. Call
   aliquot_shared_end_decision() in any case. */
void aliquot_shared_begin_decision(void);
void aliquot_shared_end_decision(void);

/* Handlers for fork(): the child inherits no intermediate state, and owns nothing until it opens the region again. */
void aliquot_shared_before_fork(void);
void aliquot_shared_after_fork_in_parent(void);
void aliquot_shared_after_fork_in_child(void);

#endif
