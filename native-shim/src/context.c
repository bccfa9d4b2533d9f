/* Hooks of context creation and destruction, and of cuInit. */
#include "context.h"

#include "account.h"
#include "array.h"
#include "charge.h"
#include "config.h"
#include "device.h"
#include "measure.h"
#include "memory.h"
#include "os.h"
#include "pool.h"

#include <pthread.h>
#include <stdio.h>

#define DEVICES ALIQUOT_LIMITS_VGPUS_MAX

/* Guards device_contexts, created_contexts and their charges. It is held while the account is called, and its holder
   may trim and query memory pools in the driver (aliquot_pool_reserve_on_device). Contexts are created and destroyed
   without it. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct {
    unsigned created;       /* non-primary contexts, including those being created */
    bool primary;           /* or a context whose creation bypassed the hooks */
    uint64_t charged_bytes; /* for all of them */
} device_contexts[DEVICES];

static struct aliquot_table created_contexts; /* non-primary contexts; only .device is used */

atomic_bool aliquot_context_charged[DEVICES]; /* the device has a context, and it is charged */

void aliquot_context_reset(void) {
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* a thread of the parent may have held it */
    for (int i = 0; i < DEVICES; i++) {
        device_contexts[i].created = 0;
        device_contexts[i].primary = false;
        device_contexts[i].charged_bytes = 0;
        atomic_store(&aliquot_context_charged[i], false);
    }
    aliquot_table_reset(&created_contexts);
}

/* Says once why no CUDA program can run: the container's limit is below the size of a context. */
static void explain_small_limit(int device, uint64_t context_bytes) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    char line[200];
    uint64_t limit = aliquot_account_limit(device);
    if (limit < context_bytes && !atomic_flag_test_and_set(&said)) {
        snprintf(line, sizeof line,
                 "aliquot: a CUDA context takes %llu MiB of this GPU, and the container's limit is %llu MiB; request "
                 "more nvidia.com/gpumem\n",
                 (unsigned long long)(context_bytes / ALIQUOT_MIB), (unsigned long long)(limit / ALIQUOT_MIB));
        aliquot_os_write_stderr(line);
    }
}

/* Requires the mutex. Charges the device's contexts if this is the first one. False: no room. */
static bool charge_first_context(int device) {
    if (!atomic_load(&aliquot_context_charged[device])) {
        uint64_t bytes = aliquot_account_share(device).context_bytes;
        /* aliquot_charge_reserve() would call this function again. */
        if (bytes > 0 && !aliquot_pool_reserve_on_device(device, bytes)) {
            explain_small_limit(device, bytes);
            return false;
        }
        device_contexts[device].charged_bytes = bytes;
        if (bytes > 0) {
            aliquot_account_set_context_bytes(device, bytes);
        }
        atomic_store_explicit(&aliquot_context_charged[device], true, memory_order_release);
    }
    return true;
}

static bool charge_context(int device, bool primary) {
    pthread_mutex_lock(&mutex);
    bool charged = charge_first_context(device);
    if (charged && primary) {
        device_contexts[device].primary = true;
    } else if (charged) {
        device_contexts[device].created++;
    }
    pthread_mutex_unlock(&mutex);
    return charged;
}

static void release_context(int device, bool primary) {
    pthread_mutex_lock(&mutex);
    if (primary) {
        device_contexts[device].primary = false;
    } else if (device_contexts[device].created > 0) {
        device_contexts[device].created--;
    }
    if (device_contexts[device].created == 0 && !device_contexts[device].primary &&
        atomic_load(&aliquot_context_charged[device])) {
        atomic_store(&aliquot_context_charged[device], false);
        aliquot_pool_last_context_ended(device);
        if (device_contexts[device].charged_bytes > 0) {
            aliquot_account_set_context_bytes(device, 0);
            aliquot_account_release(device, device_contexts[device].charged_bytes);
            device_contexts[device].charged_bytes = 0;
        }
    }
    pthread_mutex_unlock(&mutex);
}

bool aliquot_context_charge_now(int device) {
    return charge_context(device, true);
}

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
    return *device < 0 || charge_context(*device, primary) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* After the creation of a non-primary context: records it, so that its destruction is recognized. */
static CUresult record_new_context(int device, CUcontext context, CUresult result) {
    struct aliquot_allocation old, allocation = {.device = (uint32_t)device};
    bool replaced = false;
    if (device >= 0 && result != CUDA_SUCCESS) {
        release_context(device, false);
    } else if (device >= 0) {
        /* If there is no memory for the record, the context counts until the process ends. */
        aliquot_table_put(&created_contexts, (uint64_t)(uintptr_t)context, &allocation, &old, &replaced);
        if (replaced) {
            release_context((int)old.device, false);
        }
    }
    return result;
}

#define CREATE_CONTEXT(symbol, parameters, ...)                                                                        \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        int number = -1;                                                                                               \
        CUcontext new = NULL;                                                                                          \
        CUresult result = charge_new_context(device, false, &number);                                                  \
        if (result == CUDA_SUCCESS) {                                                                                  \
            result = record_new_context(number, new, aliquot_real.symbol(context == NULL ? NULL : &new, __VA_ARGS__)); \
        }                                                                                                              \
        if (result == CUDA_SUCCESS) {                                                                                  \
            *context = new;                                                                                            \
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

/* The end of a context releases what was allocated in it, except for memory pools. */
static void release_context_memory(CUcontext context) {
    aliquot_device_invalidate_contexts();
    aliquot_table_remove_owner(&aliquot_memory_allocations, context, aliquot_charge_release);
    aliquot_array_context_ended(context);
    aliquot_pool_update_charges();
}

static CUresult after_context_destroy(CUcontext context, CUresult result) {
    struct aliquot_allocation allocation;
    if (result == CUDA_SUCCESS && context != NULL) {
        release_context_memory(context);
        if (aliquot_table_remove(&created_contexts, (uint64_t)(uintptr_t)context, &allocation)) {
            release_context((int)allocation.device, false);
        }
    }
    return result;
}

CUresult cuCtxDestroy(CUcontext context) {
    ALIQUOT_REQUIRE(cuCtxDestroy)
    aliquot_measure_forget_context(context);
    return after_context_destroy(context, aliquot_real.cuCtxDestroy(context));
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    ALIQUOT_REQUIRE(cuCtxDestroy_v2)
    aliquot_measure_forget_context(context);
    return after_context_destroy(context, aliquot_real.cuCtxDestroy_v2(context));
}

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

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ALIQUOT_REQUIRE(cuDevicePrimaryCtxRetain)
    int number = -1;
    CUresult result = charge_new_context(device, true, &number);
    if (result == CUDA_SUCCESS) {
        result = aliquot_real.cuDevicePrimaryCtxRetain(context, device);
        if (result != CUDA_SUCCESS && number >= 0 && !is_primary_active(device)) {
            release_context(number, true);
        }
    }
    return result;
}

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
        release_context_memory(context);
        if (device >= 0) {
            release_context(device, true);
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
