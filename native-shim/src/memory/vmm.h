/*
 * Charges virtual memory: an allocation of cuMemCreate is charged to its device until its handles are released and its
 * mappings, to addresses and to sparse arrays, are removed. Imported memory is charged where it was created.
 */
#ifndef ALIQUOT_VMM_H
#define ALIQUOT_VMM_H

/* Records the end of all mappings to an array. */
void aliquot_vmm_array_destroyed(const void *array);

#endif
