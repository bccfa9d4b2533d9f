/* Hook of cuCtxSetLimit, by which a program sets how much memory a context has for the heap and the printf buffer of
   its kernels. */
#include "charge/allocations.h"
#include "charge/charge.h"
#include "driver/device.h"
#include "limits/account.h"
#include "limits/config.h"
#include "os/fork.h"

#include <pthread.h>

/* Held while the driver is called, so that a size and its charge change together. */
static pthread_mutex_t heap_mutex = PTHREAD_MUTEX_INITIALIZER;

static void reset_heaps(void) {
    heap_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* a thread of the parent may have held it */
}

ALIQUOT_AFTER_FORK(reset_heaps);

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
        aliquot_table_remove(&aliquot_allocations_heaps, (uint64_t)(uintptr_t)context, &heap);
        uint64_t charged = aliquot_allocations_heap_charge(heap.bytes) + reserved, added = heap.bytes + after - before;
        aliquot_account_force(device, aliquot_allocations_heap_charge(added) - charged);
        heap = (struct aliquot_allocation){.bytes = added, .owner = context, .device = (uint32_t)device};
        aliquot_table_put(&aliquot_allocations_heaps, (uint64_t)(uintptr_t)context, &heap, &replaced, &was_known);
    }
    pthread_mutex_unlock(&heap_mutex);
    return result;
}
