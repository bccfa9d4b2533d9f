/* Kernel launches. */
#ifndef ALIQUOT_FAKE_CUDA_LAUNCH_H
#define ALIQUOT_FAKE_CUDA_LAUNCH_H

#include "cuda_abi.h"

/* Returns CUDA_SUCCESS if the dimensions and the dynamic shared memory are within the limits of an A100. */
CUresult check_launch(unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ, unsigned blockDimX, unsigned blockDimY,
                      unsigned blockDimZ, unsigned sharedMemBytes);

#endif
