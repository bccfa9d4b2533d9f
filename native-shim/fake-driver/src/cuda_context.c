/* Contexts. */
#include "cuda_context.h"
#include "cuda_capture.h"
#include "cuda_pool.h"
#include "cuda_storage.h"
#include "gpu_profile.h"

#include <stdlib.h>

/* Sizes with which a context begins; they are part of its memory. */
#define PRINTF_FIFO_BYTES ((size_t)1 << 20)
#define MALLOC_HEAP_BYTES ((size_t)8 << 20)

static uint64_t bytes_beyond(size_t bytes, size_t initial) {
    return bytes > initial ? bytes - initial : 0;
}

/* What a program has added to the memory for its kernels' malloc() and printf(). */
static uint64_t added_heap_bytes(const struct CUctx_st *context) {
    return bytes_beyond(context->limits[CU_LIMIT_MALLOC_HEAP_SIZE], MALLOC_HEAP_BYTES) +
           bytes_beyond(context->limits[CU_LIMIT_PRINTF_FIFO_SIZE], PRINTF_FIFO_BYTES);
}

static void set_initial_limits(struct CUctx_st *context) {
    context->limits[CU_LIMIT_STACK_SIZE] = 1024;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = PRINTF_FIFO_BYTES;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = MALLOC_HEAP_BYTES;
    context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

static uint64_t context_bytes(const struct device *device) {
    uint64_t bytes = device->identity->context_bytes, of_profile = gpu_profile()->context_bytes;
    return bytes > of_profile ? bytes : of_profile;
}

static CUresult acquire_device_for_context(struct device *device) {
    CUresult result = device_acquire(device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (device->live_contexts == 0 && !memory_reserve(device, context_bytes(device))) {
        device_release(device);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    device->live_contexts++;
    return CUDA_SUCCESS;
}

static void release_device_of_context(struct device *device) {
    if (--device->live_contexts == 0) {
        pools_free_device_memory(device);
        memory_release(device, context_bytes(device));
    }
    device_release(device);
}

static void context_destroy(struct CUctx_st *context) {
    capture_forget_context(context); /* first, because it deletes graphs */
    objects_delete_of_context(context);
    pending_frees_complete_all(context->device);
    memory_free_of_context(context);
    context_storage_detach(context);
    context->alive = false;
    memory_release(context->device, added_heap_bytes(context));
    set_initial_limits(context); /* a primary context may be retained again */
    release_device_of_context(context->device);
}

static struct CUctx_st *context_new(struct device *device, unsigned flags, unsigned api_version) {
    static unsigned long long last_id;
    struct CUctx_st *context = calloc(1, sizeof *context);
    if (context == NULL) {
        return NULL;
    }
    context->device = device;
    context->id = ++last_id;
    context->api_version = api_version;
    context->flags = flags;
    context->attach_count = 1;
    set_initial_limits(context);
    context->next = contexts;
    contexts = context;
    return context;
}

struct CUctx_st *context_new_green(struct CUctx_st *primary) {
    struct CUctx_st *green = context_new(primary->device, primary->flags, primary->api_version);
    if (green != NULL) {
        green->primary = primary;
        green->alive = true;
    }
    return green;
}

/*
 * Checks whether a thread may make a context current. The runtime gets the handles of primary contexts from a private
 * export table and makes one current before it retains it. Such a primary context may be current before it is alive.
 */
static CUresult check_can_be_current(const struct CUctx_st *context) {
    CUresult result = check_context(context);
    bool not_retained_yet = result == CUDA_ERROR_CONTEXT_IS_DESTROYED && context == context->device->primary &&
                            context->device->primary_handle_given_out;
    return not_retained_yet ? CUDA_SUCCESS : result;
}

static CUresult push_context(struct CUctx_st *context) {
    if (context_stack.depth == CONTEXT_STACK_DEPTH) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context_stack.contexts[context_stack.depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult create_context(CUcontext *pctx, unsigned flags, CUdevice dev, unsigned api_version) {
    struct device *device;
    if (pctx == NULL || (flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0 || (flags & CU_CTX_SCHED_MASK) > 4) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = acquire_device_for_context(device);
    if (result != CUDA_SUCCESS) {
        return leave(result);
    }
    struct CUctx_st *context = context_new(device, flags, api_version);
    if (context == NULL || push_context(context) != CUDA_SUCCESS) {
        if (context != NULL) {
            context->alive = false;
        }
        release_device_of_context(device);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    context->alive = true;
    *pctx = context;
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    return create_context(pctx, flags, dev, 3010);
}

API CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    return create_context(pctx, flags, dev, 3020);
}

API CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
                            CUdevice dev) {
    if (paramsArray != NULL || numParams != 0) {
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    }
    return create_context(pctx, flags, dev, 3021);
}

API CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev) {
    if (ctxCreateParams != NULL && ctxCreateParams->numExecAffinityParams != 0) {
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    }
    if (ctxCreateParams != NULL && ctxCreateParams->cigParams != NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return create_context(pctx, flags, dev, 3021);
}

/*
 * Pops a destroyed context from the top of the calling thread's stack. Deeper in the stack and in other threads it
 * remains, and using it there is an error.
 */
static void pop_if_current(const struct CUctx_st *context) {
    if (current_context() == context) {
        context_stack.depth--;
    }
}

API CUresult cuCtxDestroy_v2(CUcontext ctx) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_context(ctx);
    if (result != CUDA_SUCCESS) {
        return leave(result);
    }
    if (ctx == ctx->device->primary || ctx->primary != NULL) {
        return leave(CUDA_ERROR_INVALID_CONTEXT); /* a primary or green context ends otherwise */
    }
    context_destroy(ctx);
    pop_if_current(ctx);
    return context_storage_run_destructors(leave(CUDA_SUCCESS));
}

API CUresult cuCtxDestroy(CUcontext ctx) {
    return cuCtxDestroy_v2(ctx);
}

API CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags) {
    struct CUctx_st *context;
    if (pctx == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    context->attach_count++;
    *pctx = context;
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxDetach(CUcontext ctx) {
    struct CUctx_st *context;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (ctx != context || ctx == ctx->device->primary) {
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (--ctx->attach_count == 0) {
        context_destroy(ctx);
        pop_if_current(ctx);
    }
    return context_storage_run_destructors(leave(CUDA_SUCCESS));
}

API CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_can_be_current(ctx);
    return leave(result == CUDA_SUCCESS ? push_context(ctx) : result);
}

API CUresult cuCtxPopCurrent_v2(CUcontext *pctx) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (context_stack.depth == 0) {
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    context_stack.depth--;
    if (pctx != NULL) {
        *pctx = context_stack.contexts[context_stack.depth];
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxSetCurrent(CUcontext ctx) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (ctx == NULL) {
        if (context_stack.depth > 0) {
            context_stack.depth--;
        }
        return leave(CUDA_SUCCESS);
    }
    result = check_can_be_current(ctx);
    if (result != CUDA_SUCCESS) {
        return leave(result);
    }
    if (context_stack.depth == 0) {
        return leave(push_context(ctx));
    }
    context_stack.contexts[context_stack.depth - 1] = ctx;
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxGetCurrent(CUcontext *pctx) {
    if (pctx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *pctx = current_context();
    return leave(CUDA_SUCCESS);
}

/* Enters the given context, or the current one if it is NULL. */
static CUresult enter_given_context(CUcontext given, struct CUctx_st **context) {
    if (given == NULL) {
        return enter_context(context);
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_context(given);
    if (result == CUDA_SUCCESS && is_device_lost(given->device)) {
        result = CUDA_ERROR_UNKNOWN;
    }
    *context = given;
    return result == CUDA_SUCCESS ? result : leave(result);
}

API CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx) {
    struct CUctx_st *context;
    if (device == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_given_context(ctx, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *device = device_ordinal(context->device);
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxGetDevice(CUdevice *device) {
    return cuCtxGetDevice_v2(device, NULL);
}

API CUresult cuCtxSynchronize_v2(CUcontext ctx) {
    struct CUctx_st *context;
    CUresult result = enter_given_context(ctx, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = capture_check_context_wait(context);
    if (result != CUDA_SUCCESS) {
        return leave(result);
    }
    const struct awaited_work work = work_pending_in_context(context);
    leave(CUDA_SUCCESS);
    work_wait(&work);
    result = enter_given_context(ctx, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pools_trim_after_sync();
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxSynchronize(void) {
    return cuCtxSynchronize_v2(NULL);
}

API CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId) {
    struct CUctx_st *context;
    if (ctxId == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_given_context(ctx, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ctxId = context->id;
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version) {
    struct CUctx_st *context;
    if (version == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_given_context(ctx, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *version = context->api_version;
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit) {
    struct CUctx_st *context;
    if (pvalue == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (limit == CU_LIMIT_CIG_ENABLED) { /* cuBLAS asks, and is left half initialized by an error */
        *pvalue = 0;
        return leave(CUDA_SUCCESS);
    }
    if ((int)limit < 0 || (int)limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) {
        return leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    }
    *pvalue = context->limits[limit];
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    struct CUctx_st *context;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if ((int)limit < 0 || (int)limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) {
        return leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    }
    size_t old_value = context->limits[limit];
    uint64_t old_bytes = added_heap_bytes(context);
    context->limits[limit] = value;
    memory_release(context->device, old_bytes);
    if (value <= GPU_MAX_MEMORY_BYTES && memory_reserve(context->device, added_heap_bytes(context))) {
        return leave(CUDA_SUCCESS);
    }
    context->limits[limit] = old_value;
    (void)memory_reserve(context->device, old_bytes);
    return leave(CUDA_ERROR_OUT_OF_MEMORY);
}

API CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
    struct CUctx_st *context;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (leastPriority != NULL) {
        *leastPriority = 0;
    }
    if (greatestPriority != NULL) {
        *greatestPriority = -5;
    }
    return leave(CUDA_SUCCESS);
}

/* The memory of every device is always mapped for every context. */
API CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
    struct CUctx_st *context;
    if (Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_context(peerContext);
    if (result == CUDA_SUCCESS && peerContext->device == context->device) {
        result = CUDA_ERROR_INVALID_DEVICE;
    }
    return leave(result);
}

API CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
    struct CUctx_st *context;
    CUresult result = enter_context(&context);
    return result == CUDA_SUCCESS ? leave(check_context(peerContext)) : result;
}

/* ---- primary contexts ---- */

/*
 * Creates the handle of the primary context at the first call. The handle stays the same, also while the context is
 * not alive.
 */
static CUresult enter_primary(CUdevice ordinal, struct device **device) {
    CUresult result = enter_device(ordinal, device);
    if (result != CUDA_SUCCESS || (*device)->primary != NULL) {
        return result;
    }
    (*device)->primary = context_new(*device, (*device)->primary_flags, 3020);
    return (*device)->primary != NULL ? result : leave(CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult primary_context_handle(CUcontext *context, CUdevice ordinal) {
    struct device *device;
    if (context == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_primary(ordinal, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    device->primary_handle_given_out = true;
    *context = device->primary;
    return leave(CUDA_SUCCESS);
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
    struct device *device;
    if (pctx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_primary(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!device->primary->alive) {
        result = acquire_device_for_context(device);
        if (result != CUDA_SUCCESS) {
            return leave(result);
        }
        device->primary->alive = true;
        device->primary->flags = device->primary_flags;
    }
    device->primary_retain_count++;
    *pctx = device->primary;
    return leave(CUDA_SUCCESS);
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    struct device *device;
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (device->primary_retain_count == 0) {
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (--device->primary_retain_count == 0 && device->primary->alive) {
        context_destroy(device->primary);
    }
    return context_storage_run_destructors(leave(CUDA_SUCCESS));
}

API CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
    return cuDevicePrimaryCtxRelease_v2(dev);
}

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    struct device *device;
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (device->primary != NULL && device->primary->alive) {
        context_destroy(device->primary);
        device->primary_retain_count = 0;
    }
    return context_storage_run_destructors(leave(CUDA_SUCCESS));
}

API CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
    return cuDevicePrimaryCtxReset_v2(dev);
}

API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
    struct device *device;
    if ((flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0 || (flags & CU_CTX_SCHED_MASK) > 4) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    device->primary_flags = flags;
    if (device->primary != NULL) {
        device->primary->flags = flags;
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active) {
    struct device *device;
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags != NULL) {
        *flags = device->primary_flags;
    }
    if (active != NULL) {
        *active = device->primary != NULL && device->primary->alive;
    }
    return leave(CUDA_SUCCESS);
}
