/*
 * Green contexts: parts of a device's primary context with some of its multiprocessors. Here they have no
 * multiprocessors of their own: work and memory of a green context are the primary context's, which it retains.
 */
#include "cuda_client.h"
#include "cuda_context.h"

#include <stdlib.h>

/* Compute capability 8.x: cuda.h, cuDevSmResourceSplitByCount. */
enum { SMALLEST_GROUP = 4, GROUP_ALIGNMENT = 2 };

struct CUgreenCtx_st {
    struct object object;
    CUcontext context;
    CUdevice device;
    unsigned multiprocessors;
};

/* cuda.h has no function that frees one. */
struct CUdevResourceDesc_st {
    unsigned multiprocessors;
};

static CUdevResource sm_resource(unsigned multiprocessors) {
    return (CUdevResource){.type = CU_DEV_RESOURCE_TYPE_SM,
                           .sm = {.smCount = multiprocessors,
                                  .minSmPartitionSize = SMALLEST_GROUP,
                                  .smCoscheduledAlignment = GROUP_ALIGNMENT}};
}

static CUresult enter_green(CUgreenCtx green) {
    return enter_with_handle(KIND_GREEN_CONTEXT, green, CUDA_ERROR_INVALID_VALUE);
}

API CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type) {
    if (resource == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (type != CU_DEV_RESOURCE_TYPE_SM) {
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct device *found = device_from_ordinal(device);
    if (found == NULL) {
        return leave(CUDA_ERROR_INVALID_DEVICE);
    }
    *resource = sm_resource(found->identity->multiprocessors);
    return leave(CUDA_SUCCESS);
}

API CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups, const CUdevResource *input,
                                         CUdevResource *remaining, unsigned int useFlags, unsigned int minCount) {
    (void)useFlags;
    if (nbGroups == NULL || input == NULL || minCount > input->sm.smCount) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (input->type != CU_DEV_RESOURCE_TYPE_SM) {
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    unsigned size = minCount < SMALLEST_GROUP ? SMALLEST_GROUP : minCount + minCount % GROUP_ALIGNMENT;
    unsigned most = input->sm.smCount / size, groups = result == NULL || *nbGroups > most ? most : *nbGroups;
    if (groups == 0) {
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    for (unsigned i = 0; result != NULL && i < groups; i++) {
        result[i] = sm_resource(size);
    }
    if (remaining != NULL) {
        unsigned rest = input->sm.smCount - groups * size;
        *remaining = rest != 0 ? sm_resource(rest) : (CUdevResource){.type = CU_DEV_RESOURCE_TYPE_INVALID};
    }
    *nbGroups = groups;
    return CUDA_SUCCESS;
}

API CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources, unsigned int nbResources) {
    unsigned multiprocessors = 0;
    if (phDesc == NULL || resources == NULL || nbResources == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < nbResources; i++) {
        if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) {
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        }
        multiprocessors += resources[i].sm.smCount;
    }
    *phDesc = malloc(sizeof **phDesc);
    if (*phDesc == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    (*phDesc)->multiprocessors = multiprocessors;
    return CUDA_SUCCESS;
}

API CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice device, unsigned int flags) {
    CUcontext primary;
    if (phCtx == NULL || desc == NULL || flags != CU_GREEN_CTX_DEFAULT_STREAM) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = cuDevicePrimaryCtxRetain(&primary, device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = enter_driver();
    struct CUgreenCtx_st *green = result == CUDA_SUCCESS ? object_new(KIND_GREEN_CONTEXT, sizeof *green, NULL) : NULL;
    CUcontext context = green != NULL ? context_new_green(primary) : NULL;
    if (context == NULL) {
        if (green != NULL) {
            object_delete(green);
        }
        if (result == CUDA_SUCCESS) {
            leave(CUDA_SUCCESS);
        }
        cuDevicePrimaryCtxRelease_v2(device);
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    }
    green->context = context;
    green->device = device;
    green->multiprocessors = desc->multiprocessors;
    *phCtx = green;
    return leave(CUDA_SUCCESS);
}

API CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
    CUresult result = enter_green(hCtx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUdevice device = hCtx->device;
    hCtx->context->alive = false;
    object_delete(hCtx);
    leave(CUDA_SUCCESS);
    return cuDevicePrimaryCtxRelease_v2(device);
}

API CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx) {
    if (pContext == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_green(hCtx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *pContext = hCtx->context;
    return leave(CUDA_SUCCESS);
}

API CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority) {
    CUcontext context;
    if ((flags & CU_STREAM_NON_BLOCKING) == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = cuCtxFromGreenCtx(&context, greenCtx);
    if (result == CUDA_SUCCESS) {
        result = cuCtxPushCurrent_v2(context);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = cuStreamCreateWithPriority(phStream, flags, priority);
    cuCtxPopCurrent_v2(&context);
    return result;
}
