/* Launches. */
#include "cuda_work.h"

API CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                            unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                            unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra) {
    if (gridDimX == 0 || gridDimY == 0 || gridDimZ == 0 || blockDimX == 0 || blockDimY == 0 || blockDimZ == 0 ||
        gridDimX > 2147483647u || gridDimY > 65535 || gridDimZ > 65535 || blockDimX > 1024 || blockDimY > 1024 ||
        blockDimZ > 64 || blockDimX * blockDimY * blockDimZ > 1024 || sharedMemBytes > 166912 ||
        (kernelParams != NULL && extra != NULL))
        return CUDA_ERROR_INVALID_VALUE;
    struct CUctx_st *context;
    CUresult result = enter_with_room(&context, hStream, 1);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_function(f))
        return leave(CUDA_ERROR_INVALID_HANDLE);
    uint64_t blocks = (uint64_t)gridDimX * gridDimY * gridDimZ;
    (void)work_put(context, hStream,
                   kernel_work(work_context(context, hStream)->device, function_name(f), blocks,
                               blockDimX * blockDimY * blockDimZ, kernelParams, extra),
                   NULL);
    return leave(CUDA_SUCCESS);
}

API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
    if (config == NULL || (config->numAttrs != 0 && config->attrs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return cuLaunchKernel(f, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
                          config->blockDimZ, config->sharedMemBytes, config->hStream, kernelParams, extra);
}

API CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                       unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                       unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                       void **kernelParams) {
    return cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
                          kernelParams, NULL);
}

/* There is nothing to profile. */
API CUresult cuProfilerStart(void) {
    return CUDA_SUCCESS;
}
API CUresult cuProfilerStop(void) {
    return CUDA_SUCCESS;
}
