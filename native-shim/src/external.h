/* Charges memory that another API, such as Vulkan, has allocated and the program imports. It exists already, so that an
   import is never refused for the limit; later allocations are. */
#ifndef ALIQUOT_EXTERNAL_H
#define ALIQUOT_EXTERNAL_H

#include "abi.h"

/* The end of a context releases what was imported in it. */
void aliquot_external_context_ended(CUcontext context);

/* The end of the last context on a device. */
void aliquot_external_last_context_ended(int device);

/* Resets the state in a forked child. */
void aliquot_external_reset(void);

#endif
