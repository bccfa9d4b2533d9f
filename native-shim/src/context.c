/* Hooks of context creation and destruction, and of cuInit. */
#include "context.h"

#include "account.h"
#include "array.h"
#include "charge.h"
#include "config.h"
#include "device.h"
#include "external.h"
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

/* By context: memory that the program has added to its heap and its printf buffer for kernels. bytes is signed: the
   program may also have made them smaller. Guarded by a mutex of its own, which is held while the driver is called. */
static struct aliquot_table added_heaps;
static pthread_mutex_t heap_mutex = PTHREAD_MUTEX_INITIALIZER;

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
    heap_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    aliquot_table_reset(&added_heaps);
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

static uint64_t heap_charge(uint64_t added) {
    return (int64_t)added > 0 ? added : 0;
}

static void release_heap(const struct aliquot_allocation *heap) {
    aliquot_account_release((int)heap->device, heap_charge(heap->bytes));
}

static void release_unless_pooled(const struct aliquot_allocation *allocation) {
    if (!allocation->pooled) {
        aliquot_charge_release(allocation);
    }
}

/* Without a context a process has no memory on the device, whatever the context it was allocated in: a green context
   allocates in the primary one, and may have ended before. */
static void release_device_memory(int device) {
    aliquot_pool_last_context_ended(device);
    aliquot_table_remove_device(&aliquot_memory_allocations, (uint32_t)device, release_unless_pooled);
    aliquot_table_remove_device(&added_heaps, (uint32_t)device, release_heap);
    aliquot_array_last_context_ended(device);
    aliquot_external_last_context_ended(device);
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
        release_device_memory(device);
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

/* The creation of a non-primary context. */
struct creation {
    CUcontext *context; /* where the program wants it; the driver refuses NULL */
    CUcontext created;
    int device; /* -1: it is not charged */
};

/* Before the driver creates the context. Returns the error that the hook must return. */
static CUresult begin_creation(struct creation *creation, CUcontext *context, CUdevice ordinal) {
    *creation = (struct creation){.context = context};
    return charge_new_context(ordinal, false, &creation->device);
}

/* Where the driver puts the context. */
static CUcontext *created_context(struct creation *creation) {
    return creation->context == NULL ? NULL : &creation->created;
}

/* Afterwards: records the context, so that its destruction is recognized. Returns the driver's result. */
static CUresult end_creation(const struct creation *creation, CUresult result) {
    struct aliquot_allocation old, allocation = {.device = (uint32_t)creation->device};
    bool replaced = false;
    if (creation->device >= 0 && result != CUDA_SUCCESS) {
        release_context(creation->device, false);
    } else if (creation->device >= 0) {
        /* If there is no memory for the record, the context counts until the process ends. */
        aliquot_table_put(&created_contexts, (uint64_t)(uintptr_t)creation->created, &allocation, &old, &replaced);
        if (replaced) {
            release_context((int)old.device, false);
        }
    }
    if (result == CUDA_SUCCESS) {
        *creation->context = creation->created;
    }
    return result;
}

#define CREATE_CONTEXT(symbol, parameters, ...)                                                                        \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        struct creation creation;                                                                                      \
        CUresult result = begin_creation(&creation, context, device);                                                  \
        return result != CUDA_SUCCESS                                                                                  \
                   ? result                                                                                            \
                   : end_creation(&creation, aliquot_real.symbol(created_context(&creation), __VA_ARGS__));            \
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
    aliquot_table_remove_owner(&added_heaps, context, release_heap);
    aliquot_array_context_ended(context);
    aliquot_external_context_ended(context);
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

static CUresult end_primary(CUdevice device, CUresult (*real)(CUdevice)) {
    CUcontext context = primary_context(device);
    aliquot_measure_forget_context(context);
    return after_primary_end(device, context, real(device));
}

#define END_PRIMARY(symbol)                                                                                            \
    CUresult symbol(CUdevice device) {                                                                                 \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        return end_primary(device, aliquot_real.symbol);                                                               \
    }

END_PRIMARY(cuDevicePrimaryCtxRelease)
END_PRIMARY(cuDevicePrimaryCtxRelease_v2)
END_PRIMARY(cuDevicePrimaryCtxReset)
END_PRIMARY(cuDevicePrimaryCtxReset_v2)

/* ---- green contexts: parts of a primary context, which they retain ---- */

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device, unsigned int flags) {
    ALIQUOT_REQUIRE(cuGreenCtxCreate)
    int number = -1;
    CUresult result = charge_new_context(device, true, &number);
    if (result == CUDA_SUCCESS) {
        result = aliquot_real.cuGreenCtxCreate(green, resources, device, flags);
        if (result != CUDA_SUCCESS && number >= 0 && !is_primary_active(device)) {
            release_context(number, true);
        }
    }
    return result;
}

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

/* ---- memory of a context for its kernels ---- */

/* Charges what the program adds to the sizes with which the context began. */
CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    ALIQUOT_REQUIRE(cuCtxSetLimit)
    CUcontext context = NULL;
    int device = -1;
    size_t before = 0, after = 0;
    if ((limit != CU_LIMIT_MALLOC_HEAP_SIZE && limit != CU_LIMIT_PRINTF_FIFO_SIZE) ||
        aliquot_config_mode() != ALIQUOT_MODE_ENFORCE || aliquot_real.cuCtxGetLimit == NULL ||
        aliquot_device_of_current(&context, &device) != CUDA_SUCCESS || device < 0) {
        return aliquot_real.cuCtxSetLimit(limit, value);
    }
    struct aliquot_allocation heap = {0}, replaced;
    bool was_known = false;
    pthread_mutex_lock(&heap_mutex);
    CUresult result = aliquot_real.cuCtxGetLimit(&before, limit);
    uint64_t reserved = result == CUDA_SUCCESS && value > before ? value - before : 0;
    if (result == CUDA_SUCCESS && !aliquot_charge_reserve(device, reserved)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
        reserved = 0;
    }
    if (result == CUDA_SUCCESS) {
        result = aliquot_real.cuCtxSetLimit(limit, value);
        after = before;
        aliquot_real.cuCtxGetLimit(&after, limit); /* the driver may have rounded, or done nothing */
        aliquot_table_remove(&added_heaps, (uint64_t)(uintptr_t)context, &heap);
        uint64_t charged = heap_charge(heap.bytes) + reserved, added = heap.bytes + after - before;
        aliquot_account_force(device, heap_charge(added) - charged);
        heap = (struct aliquot_allocation){.bytes = added, .owner = context, .device = (uint32_t)device};
        aliquot_table_put(&added_heaps, (uint64_t)(uintptr_t)context, &heap, &replaced, &was_known);
    }
    pthread_mutex_unlock(&heap_mutex);
    return result;
}
