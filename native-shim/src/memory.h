/* Charges plain, pitched and managed memory, and releases every address that cuMemFree or cuMemFreeAsync frees. */
#ifndef ALIQUOT_MEMORY_H
#define ALIQUOT_MEMORY_H

#include "table.h"

/* Allocations by device address, including those from memory pools. */
extern struct aliquot_table aliquot_memory_allocations;

/* Resets the state in a forked child. */
void aliquot_memory_reset(void);

#endif
