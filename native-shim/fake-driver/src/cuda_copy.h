/* Copies and fills, for the launches of graphs. */
#ifndef ALIQUOT_FAKE_CUDA_COPY_H
#define ALIQUOT_FAKE_CUDA_COPY_H

#include "cuda_driver.h"

/* Where a memcpy node reads and writes. Called with the driver lock held. */
bool memcpy_reads_host(const CUDA_MEMCPY3D *copy);
bool memcpy_writes_host(const CUDA_MEMCPY3D *copy);

/*
 * Carry out a memcpy or memset node. Called without the lock. They do nothing if the memory has been freed since the
 * parameters were checked.
 */
void run_memcpy(const CUDA_MEMCPY3D *copy);
void run_memset(const CUDA_MEMSET_NODE_PARAMS_v2 *params);

#endif
