/* Arrays and mipmapped arrays. */
#ifndef ALIQUOT_ARRAY_H
#define ALIQUOT_ARRAY_H

#include "abi.h"

/* The arrays made in a context have gone with it. */
void aliquot_array_context_ended(CUcontext context);

/* In a forked child. */
void aliquot_array_reset(void);

#endif
