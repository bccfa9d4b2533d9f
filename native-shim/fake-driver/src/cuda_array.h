/* Arrays: what copies and the registry of handles ask of them. With the driver's lock held. */
#ifndef ALIQUOT_FAKE_CUDA_ARRAY_H
#define ALIQUOT_FAKE_CUDA_ARRAY_H

#include "cuda_driver.h"

/*
 * Where in memory a part of an array lies: x and the width in bytes, y and z in rows and layers.
 * CUDA_ERROR_INVALID_HANDLE if it isn't an array, CUDA_ERROR_INVALID_VALUE if it has no such part or no memory yet.
 */
CUresult array_part(CUarray handle, const size_t offset[3], const size_t extent[3], uintptr_t *start, size_t *pitch,
                    size_t *layer);

/* Frees what an array or a mipmapped array, which is about to be deleted, holds. */
void array_free(struct object *object);

#endif
