/* Charges CUDA arrays and mipmapped arrays. */
#ifndef ALIQUOT_ARRAY_H
#define ALIQUOT_ARRAY_H

#include "abi.h"

/* Releases the arrays that were created in a context that has ended. */
void aliquot_array_context_ended(CUcontext context);
void aliquot_array_last_context_ended(int device);

/* Resets the state in a forked child. */
void aliquot_array_reset(void);

#endif
