/* Kernel launches. */
#include "cuda_capture.h"
#include "cuda_function.h"
#include "gpu_profile.h"

#include <pthread.h>

/* Returns CUDA_SUCCESS if the dimensions and the dynamic shared memory are within the limits of an A100. */
static CUresult check_launch(unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ, unsigned blockDimX,
                             unsigned blockDimY, unsigned blockDimZ, unsigned sharedMemBytes) {
    if (gridDimX == 0 || gridDimY == 0 || gridDimZ == 0 || blockDimX == 0 || blockDimY == 0 || blockDimZ == 0 ||
        gridDimX > 2147483647u || gridDimY > 65535 || gridDimZ > 65535 || blockDimX > 1024 || blockDimY > 1024 ||
        blockDimZ > 64 || blockDimX * blockDimY * blockDimZ > 1024 || sharedMemBytes > 166912) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

enum { LOADED_MAX = 4096 };

/* Lazy loading: the first launch of a kernel waits until its code is on the GPU. */
static void load_on_first_launch(CUfunction function) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static CUfunction loaded[LOADED_MAX];
    static unsigned count;
    const struct gpu_profile *profile = gpu_profile();
    if (profile->lazy_max_ns == 0) {
        return;
    }
    pthread_mutex_lock(&mutex);
    unsigned i = 0;
    while (i < count && loaded[i] != function) {
        i++;
    }
    uint64_t ns = i == count ? gpu_profile_between(profile->lazy_min_ns, profile->lazy_max_ns) : 0;
    if (i == count && count < LOADED_MAX) {
        loaded[count++] = function;
    }
    pthread_mutex_unlock(&mutex);
    if (ns != 0) {
        gpu_sleep_until(gpu_now() + ns);
    }
}

static CUresult launch_kernel(const CUDA_KERNEL_NODE_PARAMS_v3 *kernel, CUstream stream) {
    struct CUctx_st *context;
    struct capture_member *capturing;
    if (kernel->kernelParams != NULL && kernel->extra != NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = check_launch(kernel->gridDimX, kernel->gridDimY, kernel->gridDimZ, kernel->blockDimX,
                                   kernel->blockDimY, kernel->blockDimZ, kernel->sharedMemBytes);
    if (result == CUDA_SUCCESS) {
        load_on_first_launch(kernel->func);
    }
    if (result == CUDA_SUCCESS) {
        result = enter_with_queue_space(&context, stream, 1, &capturing);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!is_function(kernel->func)) {
        return leave(CUDA_ERROR_INVALID_HANDLE);
    }
    if (capturing != NULL) {
        const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = *kernel};
        return leave(capture_add_node(capturing, CUDA_SUCCESS, &params));
    }
    uint64_t blocks = (uint64_t)kernel->gridDimX * kernel->gridDimY * kernel->gridDimZ;
    unsigned threads = kernel->blockDimX * kernel->blockDimY * kernel->blockDimZ;
    (void)work_submit(context, stream,
                      kernel_work(stream_context(context, stream)->device, function_name(kernel->func), blocks, threads,
                                  kernel->kernelParams, kernel->extra),
                      NULL);
    return leave(CUDA_SUCCESS);
}

API CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                            unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                            unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra) {
    const CUDA_KERNEL_NODE_PARAMS_v3 kernel = {.func = f,
                                               .gridDimX = gridDimX,
                                               .gridDimY = gridDimY,
                                               .gridDimZ = gridDimZ,
                                               .blockDimX = blockDimX,
                                               .blockDimY = blockDimY,
                                               .blockDimZ = blockDimZ,
                                               .sharedMemBytes = sharedMemBytes,
                                               .kernelParams = kernelParams,
                                               .extra = extra};
    return launch_kernel(&kernel, hStream);
}

API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
    if (config == NULL || (config->numAttrs != 0 && config->attrs == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUDA_KERNEL_NODE_PARAMS_v3 kernel = {.func = f,
                                               .gridDimX = config->gridDimX,
                                               .gridDimY = config->gridDimY,
                                               .gridDimZ = config->gridDimZ,
                                               .blockDimX = config->blockDimX,
                                               .blockDimY = config->blockDimY,
                                               .blockDimZ = config->blockDimZ,
                                               .sharedMemBytes = config->sharedMemBytes,
                                               .kernelParams = kernelParams,
                                               .extra = extra};
    return launch_kernel(&kernel, config->hStream);
}

API CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                       unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                       unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                       void **kernelParams) {
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
    CUlaunchConfig config = {gridDimX,  gridDimY,       gridDimZ, blockDimX,    blockDimY,
                             blockDimZ, sharedMemBytes, hStream,  &cooperative, 1};
    return cuLaunchKernelEx(&config, f, kernelParams, NULL);
}

/* There is no profiler. */
API CUresult cuProfilerStart(void) {
    return CUDA_SUCCESS;
}
API CUresult cuProfilerStop(void) {
    return CUDA_SUCCESS;
}
