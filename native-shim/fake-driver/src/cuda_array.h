/* CUDA arrays, for copies. Called with the driver lock held. */
#ifndef ALIQUOT_FAKE_CUDA_ARRAY_H
#define ALIQUOT_FAKE_CUDA_ARRAY_H

#include "cuda_driver.h"

/*
 * Returns the address and the pitches of a region of an array. offset and extent are {x in bytes, y in rows, z in
 * layers}. CUDA_ERROR_INVALID_HANDLE if handle is not an array; CUDA_ERROR_INVALID_VALUE if the region is outside the
 * array or the array has no memory yet.
 */
CUresult array_region(CUarray handle, const size_t offset[3], const size_t extent[3], uintptr_t *start, size_t *pitch,
                      size_t *layer);

#endif
