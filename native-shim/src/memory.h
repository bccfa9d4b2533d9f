/* Plain, pitched and managed memory, and every address that is freed by cuMemFree or cuMemFreeAsync. */
#ifndef ALIQUOT_MEMORY_H
#define ALIQUOT_MEMORY_H

#include "table.h"

/* Addresses of device memory, the pools' too. */
extern struct aliquot_table aliquot_memory;

/* In a forked child. */
void aliquot_memory_reset(void);

#endif
