/* The making and the end of contexts, and cuInit. */
#include "context.h"

#include "account.h"
#include "array.h"
#include "charge.h"
#include "compute.h"
#include "config.h"
#include "device.h"
#include "memory.h"
#include "pool.h"

#include <pthread.h>

#define DEVICES ALIQUOT_LIMITS_MOST_VGPUS

/* Guards what follows; the account is asked under it, the driver is not. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct {
    unsigned made;    /* contexts but the primary one, those in the making too */
    bool primary;     /* or one that nobody saw being made */
    uint64_t charged; /* bytes, of them all */
} of_device[DEVICES];

static struct aliquot_table made; /* contexts but primary ones; of the holding only the device counts */

atomic_bool aliquot_context_seen[DEVICES]; /* there is a context, and it is charged */

void aliquot_context_reset(void) {
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* a fork may have come while a thread had it */
    for (int i = 0; i < DEVICES; i++) {
        of_device[i].made = 0;
        of_device[i].primary = false;
        of_device[i].charged = 0;
        atomic_store(&aliquot_context_seen[i], false);
    }
    aliquot_table_reset(&made);
}

/* With the mutex. False: it is the first, and there is no room for it. */
static bool is_room_for_first(int device) {
    if (!atomic_load(&aliquot_context_seen[device])) {
        uint64_t bytes = aliquot_account_vgpu(device).context;
        /* Not by aliquot_charge_reserve(), which would come back here. */
        if (bytes > 0 && !aliquot_pool_reserve(device, bytes)) {
            return false;
        }
        of_device[device].charged = bytes;
        if (bytes > 0) {
            aliquot_account_context(device, bytes);
        }
        atomic_store_explicit(&aliquot_context_seen[device], true, memory_order_release);
    }
    return true;
}

static bool arrive(int device, bool primary) {
    pthread_mutex_lock(&mutex);
    bool room = is_room_for_first(device);
    if (room && primary) {
        of_device[device].primary = true;
    } else if (room) {
        of_device[device].made++;
    }
    pthread_mutex_unlock(&mutex);
    return room;
}

static void depart(int device, bool primary) {
    pthread_mutex_lock(&mutex);
    if (primary) {
        of_device[device].primary = false;
    } else if (of_device[device].made > 0) {
        of_device[device].made--;
    }
    if (of_device[device].made == 0 && !of_device[device].primary && atomic_load(&aliquot_context_seen[device])) {
        atomic_store(&aliquot_context_seen[device], false);
        aliquot_pool_contexts_are_gone(device);
        if (of_device[device].charged > 0) {
            aliquot_account_context(device, 0);
            aliquot_account_release(device, of_device[device].charged);
            of_device[device].charged = 0;
        }
    }
    pthread_mutex_unlock(&mutex);
}

bool aliquot_context_charge_unseen(int device) {
    return arrive(device, true);
}

CUresult cuInit(unsigned int flags) {
    if (!aliquot_lookup_cuda() || aliquot_bare.cuInit == NULL) {
        return CUDA_ERROR_NO_DEVICE;
    }
    return aliquot_config_mode() == ALIQUOT_MODE_CLOSED ? CUDA_ERROR_NOT_PERMITTED : aliquot_bare.cuInit(flags);
}

/* A context in the making. -1 as device: it is not counted. */
static CUresult begin(CUdevice ordinal, bool primary, int *device) {
    enum aliquot_mode mode = aliquot_config_mode();
    *device = mode == ALIQUOT_MODE_ENFORCE ? aliquot_device_of_ordinal(ordinal) : -1;
    if (mode == ALIQUOT_MODE_CLOSED) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    return *device < 0 || arrive(*device, primary) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Remembers a context that was made, so that its end can be told from another's. */
static CUresult end(int device, CUcontext context, CUresult result) {
    struct aliquot_holding old, holding = {.device = (uint32_t)device};
    bool replaced = false;
    if (device >= 0 && result != CUDA_SUCCESS) {
        depart(device, false);
    } else if (device >= 0) {
        /* Without memory to remember it, it is counted until the process ends. */
        aliquot_table_put(&made, (uint64_t)(uintptr_t)context, &holding, &old, &replaced);
        if (replaced) {
            depart((int)old.device, false);
        }
    }
    return result;
}

#define CREATE(symbol, parameters, ...)                                                                                \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_NEED(symbol)                                                                                           \
        int number = -1;                                                                                               \
        CUcontext new = NULL;                                                                                          \
        CUresult result = begin(device, false, &number);                                                               \
        if (result == CUDA_SUCCESS) {                                                                                  \
            result = end(number, new, aliquot_bare.symbol(context == NULL ? NULL : &new, __VA_ARGS__));                \
        }                                                                                                              \
        if (result == CUDA_SUCCESS) {                                                                                  \
            *context = new;                                                                                            \
        }                                                                                                              \
        return result;                                                                                                 \
    }

CREATE(cuCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device), flags, device)
CREATE(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device), flags, device)
CREATE(cuCtxCreate_v3,
       (CUcontext * context, CUexecAffinityParam *affinity, int count, unsigned int flags, CUdevice device), affinity,
       count, flags, device)
CREATE(cuCtxCreate_v4, (CUcontext * context, CUctxCreateParams *parameters, unsigned int flags, CUdevice device),
       parameters, flags, device)

/* The end of a context is the end of what was made in it; of memory pools it is not. */
static void forget(CUcontext context) {
    aliquot_device_forget_contexts();
    aliquot_table_take_owner(&aliquot_memory, context, aliquot_charge_give_back);
    aliquot_array_context_ended(context);
    aliquot_pool_true_up();
}

static CUresult after_destruction(CUcontext context, CUresult result) {
    struct aliquot_holding holding;
    if (result == CUDA_SUCCESS && context != NULL) {
        forget(context);
        if (aliquot_table_take(&made, (uint64_t)(uintptr_t)context, &holding)) {
            depart((int)holding.device, false);
        }
    }
    return result;
}

CUresult cuCtxDestroy(CUcontext context) {
    ALIQUOT_NEED(cuCtxDestroy)
    aliquot_compute_forget_context(context);
    return after_destruction(context, aliquot_bare.cuCtxDestroy(context));
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    ALIQUOT_NEED(cuCtxDestroy_v2)
    aliquot_compute_forget_context(context);
    return after_destruction(context, aliquot_bare.cuCtxDestroy_v2(context));
}

/* Of the current context; destroys it unless somebody else is attached. */
CUresult cuCtxDetach(CUcontext context) {
    ALIQUOT_NEED(cuCtxDetach)
    CUcontext current = NULL;
    aliquot_compute_forget_context(context);
    CUresult result = aliquot_bare.cuCtxDetach(context);
    bool lives = aliquot_bare.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context;
    return after_destruction(lives ? NULL : context, result);
}

static bool is_active(CUdevice device) {
    unsigned int flags = 0;
    int active = 0;
    return aliquot_bare.cuDevicePrimaryCtxGetState != NULL &&
           aliquot_bare.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ALIQUOT_NEED(cuDevicePrimaryCtxRetain)
    int number = -1;
    CUresult result = begin(device, true, &number);
    if (result == CUDA_SUCCESS) {
        result = aliquot_bare.cuDevicePrimaryCtxRetain(context, device);
        if (result != CUDA_SUCCESS && number >= 0 && !is_active(device)) {
            depart(number, true);
        }
    }
    return result;
}

/* The device's primary context if it exists; else NULL. Its handle is only to be had by retaining it. */
static CUcontext primary_context(CUdevice device) {
    CUcontext context = NULL;
    if (aliquot_config_mode() != ALIQUOT_MODE_ENFORCE || !is_active(device) ||
        aliquot_bare.cuDevicePrimaryCtxRetain == NULL ||
        aliquot_bare.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) {
        return NULL;
    }
    if (aliquot_bare.cuDevicePrimaryCtxRelease_v2 != NULL) {
        aliquot_bare.cuDevicePrimaryCtxRelease_v2(device);
    } else if (aliquot_bare.cuDevicePrimaryCtxRelease != NULL) {
        aliquot_bare.cuDevicePrimaryCtxRelease(device);
    }
    return context;
}

/* After a reset the context is inactive, whoever still holds it; after a release it lives on while others do. */
static CUresult after_primary(CUdevice ordinal, CUcontext context, CUresult result) {
    if (result == CUDA_SUCCESS && context != NULL && !is_active(ordinal)) {
        int device = aliquot_device_of_ordinal(ordinal);
        forget(context);
        if (device >= 0) {
            depart(device, true);
        }
    }
    return result;
}

#define END_PRIMARY(symbol)                                                                                            \
    CUresult symbol(CUdevice device) {                                                                                 \
        ALIQUOT_NEED(symbol)                                                                                           \
        CUcontext context = primary_context(device);                                                                   \
        aliquot_compute_forget_context(context);                                                                       \
        return after_primary(device, context, aliquot_bare.symbol(device));                                            \
    }

END_PRIMARY(cuDevicePrimaryCtxRelease)
END_PRIMARY(cuDevicePrimaryCtxRelease_v2)
END_PRIMARY(cuDevicePrimaryCtxReset)
END_PRIMARY(cuDevicePrimaryCtxReset_v2)
