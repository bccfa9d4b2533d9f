/* Virtual memory management: what the rest of the driver asks of mapped memory. With the driver's lock held. */
#ifndef ALIQUOT_FAKE_CUDA_VMM_H
#define ALIQUOT_FAKE_CUDA_VMM_H

#include "cuda_memory.h"

/* Whether any device, or the host, was given that access to a mapping (an allocation of the kind MAPPED_MEMORY). */
bool mapping_allows(const struct allocation *mapping, bool writing);

/* The kinds of handle that a mapping's memory can be exported as. */
CUmemAllocationHandleType mapping_handle_types(const struct allocation *mapping);

#endif
