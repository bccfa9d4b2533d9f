#include "charge/context.h"

#include "charge/allocations.h"
#include "charge/pool.h"
#include "driver/device.h"
#include "limits/account.h"
#include "os/fork.h"
#include "os/os.h"
#include "os/shared.h"

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

static void reset_contexts(void) {
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* a thread of the parent may have held it */
    for (int i = 0; i < DEVICES; i++) {
        device_contexts[i].created = 0;
        device_contexts[i].primary = false;
        device_contexts[i].charged_bytes = 0;
        atomic_store(&aliquot_context_charged[i], false);
    }
    aliquot_table_reset(&created_contexts);
}

ALIQUOT_AFTER_FORK(reset_contexts);

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

/* Requires the mutex. Charges the device's contexts if this is the first one. False: no room. A process with a context
   owns a slot even if the size of a context is not known: the node agent takes one without a slot for a program without
   the shim. */
static bool charge_first_context(int device) {
    if (!atomic_load(&aliquot_context_charged[device])) {
        uint64_t bytes = aliquot_account_share(device).context_bytes;
        if (aliquot_shared_slot() < 0) {
            return false;
        }
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

bool aliquot_context_charge(int device, bool primary) {
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

/* Without a context a process has no memory on the device, whatever the context it was allocated in. */
static void release_device_memory(int device) {
    aliquot_pool_last_context_ended(device);
    aliquot_allocations_last_context_ended(device);
}

void aliquot_context_release(int device, bool primary) {
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

void aliquot_context_created(CUcontext context, int device) {
    struct aliquot_allocation old, allocation = {.device = (uint32_t)device};
    bool replaced = false;
    /* If there is no memory for the record, the context counts until the process ends. */
    aliquot_table_put(&created_contexts, (uint64_t)(uintptr_t)context, &allocation, &old, &replaced);
    if (replaced) {
        aliquot_context_release((int)old.device, false);
    }
}

void aliquot_context_destroyed(CUcontext context) {
    struct aliquot_allocation allocation;
    aliquot_context_release_memory(context);
    if (aliquot_table_remove(&created_contexts, (uint64_t)(uintptr_t)context, &allocation)) {
        aliquot_context_release((int)allocation.device, false);
    }
}

void aliquot_context_release_memory(CUcontext context) {
    aliquot_device_invalidate_contexts();
    aliquot_allocations_context_ended(context);
    aliquot_pool_update_charges();
}
