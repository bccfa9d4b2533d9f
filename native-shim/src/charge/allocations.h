/* What is charged until it is freed or its context ends: memory by address, arrays and imported memory by handle. */
#ifndef ALIQUOT_ALLOCATIONS_H
#define ALIQUOT_ALLOCATIONS_H

#include "driver/abi.h"
#include "os/table.h"

/* By device address: plain, pitched and managed memory, and memory from pools. */
extern struct aliquot_table aliquot_allocations_memory;

/* By handle: arrays and mipmapped arrays; external memory that the program has imported. */
extern struct aliquot_table aliquot_allocations_arrays;
extern struct aliquot_table aliquot_allocations_imports;

/* By context: memory that the program has added to the heap and the printf buffer of its kernels. bytes is signed: the
   program may also have made them smaller. */
extern struct aliquot_table aliquot_allocations_heaps;

/* What is charged for an entry of that table. */
static inline uint64_t aliquot_allocations_heap_charge(uint64_t added) {
    return (int64_t)added > 0 ? added : 0;
}

/* Releases the charge of an allocation that is not from a pool. */
void aliquot_allocations_release(const struct aliquot_allocation *allocation);

/* The end of a context releases what was allocated in it, except for what is from pools. */
void aliquot_allocations_context_ended(CUcontext context);

/* The end of the last context on a device releases the rest: a green context allocates in the primary one, and may have
   ended before. */
void aliquot_allocations_last_context_ended(int device);

#endif
