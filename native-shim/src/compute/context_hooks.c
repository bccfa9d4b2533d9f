/* Hooks of context creation and destruction, and of cuInit. With a context end the measurements of its launches and the
   charges of its memory. */
#include "charge/context.h"
#include "compute/measure.h"
#include "driver/device.h"
#include "driver/lookup.h"
#include "limits/config.h"

CUresult cuInit(unsigned int flags) {
    if (!aliquot_lookup_cuda() || aliquot_real.cuInit == NULL) {
        return CUDA_ERROR_NO_DEVICE;
    }
    return aliquot_config_mode() == ALIQUOT_MODE_REFUSE ? CUDA_ERROR_NOT_PERMITTED : aliquot_real.cuInit(flags);
}

/* Charges a context before it is created. *device is -1 if it is not charged. */
static CUresult charge_new_context(CUdevice ordinal, bool primary, int *device) {
    enum aliquot_mode mode = aliquot_config_mode();
    *device = mode == ALIQUOT_MODE_ENFORCE ? aliquot_device_of_ordinal(ordinal) : -1;
    if (mode == ALIQUOT_MODE_REFUSE) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    return *device < 0 || aliquot_context_charge(*device, primary) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Records a context that is not primary, so that its destruction is recognized. */
static void after_creation(CUresult result, CUcontext created, int device) {
    if (device >= 0 && result != CUDA_SUCCESS) {
        aliquot_context_release(device, false);
    } else if (device >= 0) {
        aliquot_context_created(created, device);
    }
}

/* The driver refuses NULL in place of where the program wants the context. */
#define CREATE_CONTEXT(symbol, parameters, ...)                                                                        \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        CUcontext created = NULL;                                                                                      \
        int number = -1;                                                                                               \
        CUresult result = charge_new_context(device, false, &number);                                                  \
        if (result != CUDA_SUCCESS) {                                                                                  \
            return result;                                                                                             \
        }                                                                                                              \
        result = aliquot_real.symbol(context == NULL ? NULL : &created, __VA_ARGS__);                                  \
        after_creation(result, created, number);                                                                       \
        if (result == CUDA_SUCCESS) {                                                                                  \
            *context = created;                                                                                        \
        }                                                                                                              \
        return result;                                                                                                 \
    }

CREATE_CONTEXT(cuCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device), flags, device)
CREATE_CONTEXT(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device), flags, device)
CREATE_CONTEXT(cuCtxCreate_v3,
               (CUcontext * context, CUexecAffinityParam *affinity, int count, unsigned int flags, CUdevice device),
               affinity, count, flags, device)
CREATE_CONTEXT(cuCtxCreate_v4,
               (CUcontext * context, CUctxCreateParams *parameters, unsigned int flags, CUdevice device), parameters,
               flags, device)

static CUresult after_context_destroy(CUcontext context, CUresult result) {
    if (result == CUDA_SUCCESS && context != NULL) {
        aliquot_context_destroyed(context);
    }
    return result;
}

#define DESTROY_CONTEXT(symbol)                                                                                        \
    CUresult symbol(CUcontext context) {                                                                               \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        aliquot_measure_forget_context(context);                                                                       \
        return after_context_destroy(context, aliquot_real.symbol(context));                                           \
    }

DESTROY_CONTEXT(cuCtxDestroy)
DESTROY_CONTEXT(cuCtxDestroy_v2)

/* Detaches from the current context; the driver destroys it unless it is attached elsewhere. */
CUresult cuCtxDetach(CUcontext context) {
    ALIQUOT_REQUIRE(cuCtxDetach)
    CUcontext current = NULL;
    aliquot_measure_forget_context(context);
    CUresult result = aliquot_real.cuCtxDetach(context);
    bool exists = aliquot_real.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context;
    return after_context_destroy(exists ? NULL : context, result);
}

static bool is_primary_active(CUdevice device) {
    unsigned int flags = 0;
    int active = 0;
    return aliquot_real.cuDevicePrimaryCtxGetState != NULL &&
           aliquot_real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

/* A function that retains the device's primary context. */
#define RETAIN_PRIMARY(symbol, parameters, arguments)                                                                  \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        int number = -1;                                                                                               \
        CUresult result = charge_new_context(device, true, &number);                                                   \
        if (result == CUDA_SUCCESS) {                                                                                  \
            result = aliquot_real.symbol arguments;                                                                    \
            if (result != CUDA_SUCCESS && number >= 0 && !is_primary_active(device)) {                                 \
                aliquot_context_release(number, true);                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        return result;                                                                                                 \
    }

RETAIN_PRIMARY(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), (context, device))

/* Primary context of the device; NULL if it is not active. Only retaining it returns its handle. */
static CUcontext primary_context(CUdevice device) {
    CUcontext context = NULL;
    if (aliquot_config_mode() != ALIQUOT_MODE_ENFORCE || !is_primary_active(device) ||
        aliquot_real.cuDevicePrimaryCtxRetain == NULL ||
        aliquot_real.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) {
        return NULL;
    }
    if (aliquot_real.cuDevicePrimaryCtxRelease_v2 != NULL) {
        aliquot_real.cuDevicePrimaryCtxRelease_v2(device);
    } else if (aliquot_real.cuDevicePrimaryCtxRelease != NULL) {
        aliquot_real.cuDevicePrimaryCtxRelease(device);
    }
    return context;
}

/* After a reset the context is inactive even if it is still retained. After a release it stays active while other
   references exist. */
static CUresult after_primary_end(CUdevice ordinal, CUcontext context, CUresult result) {
    if (result == CUDA_SUCCESS && context != NULL && !is_primary_active(ordinal)) {
        int device = aliquot_device_of_ordinal(ordinal);
        aliquot_context_release_memory(context);
        if (device >= 0) {
            aliquot_context_release(device, true);
        }
    }
    return result;
}

#define END_PRIMARY(symbol)                                                                                            \
    CUresult symbol(CUdevice device) {                                                                                 \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        CUcontext context = primary_context(device);                                                                   \
        aliquot_measure_forget_context(context);                                                                       \
        return after_primary_end(device, context, aliquot_real.symbol(device));                                        \
    }

END_PRIMARY(cuDevicePrimaryCtxRelease)
END_PRIMARY(cuDevicePrimaryCtxRelease_v2)
END_PRIMARY(cuDevicePrimaryCtxReset)
END_PRIMARY(cuDevicePrimaryCtxReset_v2)

/* ---- green contexts: parts of a primary context, which they retain ---- */

RETAIN_PRIMARY(cuGreenCtxCreate, (CUgreenCtx * green, CUdevResourceDesc resources, CUdevice device, unsigned int flags),
               (green, resources, device, flags))

/* What was allocated while the green context was current stays in the primary context. */
CUresult cuGreenCtxDestroy(CUgreenCtx green) {
    ALIQUOT_REQUIRE(cuGreenCtxDestroy)
    CUcontext context = NULL, primary = NULL;
    CUdevice device = 0;
    if (aliquot_config_mode() == ALIQUOT_MODE_ENFORCE && aliquot_real.cuCtxFromGreenCtx != NULL &&
        aliquot_real.cuCtxFromGreenCtx(&context, green) == CUDA_SUCCESS) {
        primary = aliquot_device_ordinal_of_context(context, &device) == CUDA_SUCCESS ? primary_context(device) : NULL;
        aliquot_measure_forget_context(context);
    }
    CUresult result = aliquot_real.cuGreenCtxDestroy(green);
    if (result == CUDA_SUCCESS) {
        aliquot_device_invalidate_contexts();
    }
    return after_primary_end(device, primary, result);
}
