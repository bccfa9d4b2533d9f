/*
 * Virtual memory: what cuMemCreate makes is charged to the device it lies on, until its handles are released and its
 * mappings, to addresses and to sparse arrays, are gone. What is imported is charged where it was made.
 */
#ifndef ALIQUOT_VMM_H
#define ALIQUOT_VMM_H

/* What was mapped to an array is so no longer. */
void aliquot_vmm_array_destroyed(const void *array);

/* In a forked child. */
void aliquot_vmm_reset(void);

#endif
