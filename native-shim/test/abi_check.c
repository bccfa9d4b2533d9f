/* Compiled only where NVIDIA's cuda.h is: it fails to, unless every prototype and constant of ours is NVIDIA's. */
#define __CUDA_API_VERSION_INTERNAL /* cuda.h then declares the old ABIs too */
#include <cuda.h>
#define ALIQUOT_CUDA_H_INCLUDED
#include "hooks.h"

#include <assert.h>

/* Redeclaring with another type is an error; naming the function first makes sure that cuda.h has it. */
#define CUDA(result, symbol, parameters)                                                                               \
    _Static_assert(sizeof &symbol != 0, #symbol);                                                                      \
    result symbol parameters;
#define NVML(result, symbol, parameters)
#define CHECK_HOOK(library, result, symbol, name, version, flags, parameters) library(result, symbol, parameters)
#define CHECK_BARE(library, result, symbol, parameters) library(result, symbol, parameters)
ALIQUOT_HOOKS(CHECK_HOOK)
ALIQUOT_BARE(CHECK_BARE)

static_assert(CUDA_SUCCESS == 0 && CUDA_ERROR_INVALID_VALUE == 1 && CUDA_ERROR_OUT_OF_MEMORY == 2, "cuda.h");
static_assert(CUDA_ERROR_NO_DEVICE == 100 && CUDA_ERROR_NOT_PERMITTED == 800 && CUDA_ERROR_NOT_SUPPORTED == 801,
              "cuda.h");
static_assert(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM == 2, "cuda.h");
static_assert(sizeof(CUresult) == 4 && sizeof(CUdevice) == 4 && sizeof(CUdeviceptr) == 8 && sizeof(CUuuid) == 16,
              "cuda.h");
