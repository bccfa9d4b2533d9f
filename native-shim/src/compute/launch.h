/* Throttling of launches, for other work that keeps the GPU busy. */
#ifndef ALIQUOT_LAUNCH_H
#define ALIQUOT_LAUNCH_H

#include "driver/abi.h"

#include <stdint.h>

/* This thread begins to wait until the GPU has done what the thread launched. */
void aliquot_launch_wait_begins(void);

/* Charges nanoseconds of GPU time to a device as numbered in account.h, and sleeps until the share allows it. */
void aliquot_launch_charge(CUcontext context, int device, uint64_t nanoseconds);

#endif
