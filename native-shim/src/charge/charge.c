#include "charge/charge.h"

#include "charge/allocations.h"
#include "charge/context.h"
#include "charge/pool.h"
#include "driver/device.h"
#include "limits/account.h"
#include "limits/config.h"

bool aliquot_charge_reserve(int device, uint64_t bytes) {
    return aliquot_context_ensure_charged(device) && aliquot_pool_reserve_on_device(device, bytes);
}

CUresult aliquot_charge_begin(struct aliquot_allocation *charge, uint64_t bytes) {
    enum aliquot_mode mode = aliquot_config_mode();
    charge->owner = NULL;
    if (mode != ALIQUOT_MODE_ENFORCE) {
        return mode == ALIQUOT_MODE_REFUSE ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
    }
    CUcontext context = NULL;
    int device = -1;
    CUresult result = aliquot_device_of_current(&context, &device);
    if (result != CUDA_SUCCESS) {
        return result; /* no context, or not initialized: the allocation itself would return the same */
    }
    if (device < 0 || !aliquot_charge_reserve(device, bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *charge = (struct aliquot_allocation){.bytes = bytes, .owner = context, .device = (uint32_t)device};
    return CUDA_SUCCESS;
}

bool aliquot_charge_adjust(struct aliquot_allocation *charge, uint64_t bytes) {
    uint64_t reserved = charge->bytes;
    if (charge->owner == NULL || bytes == reserved) {
        return true;
    }
    if (bytes > reserved && !aliquot_charge_reserve((int)charge->device, bytes - reserved)) {
        return false;
    }
    if (bytes < reserved) {
        aliquot_account_release((int)charge->device, reserved - bytes);
    }
    charge->bytes = bytes;
    return true;
}

CUresult aliquot_charge_cancel(const struct aliquot_allocation *charge, CUresult result) {
    if (charge->owner != NULL) {
        aliquot_allocations_release(charge);
    }
    return result;
}

bool aliquot_charge_record(const struct aliquot_allocation *charge, struct aliquot_table *table, uint64_t key) {
    struct aliquot_allocation old;
    bool replaced = false;
    if (charge->owner == NULL) {
        return true;
    }
    bool recorded = aliquot_table_put(table, key, charge, &old, &replaced);
    if (replaced && !old.pooled) {
        aliquot_allocations_release(&old); /* freed in a way that bypasses the hooks: the driver reused the key */
    } else if (replaced) {
        aliquot_pool_freed(&old, false);
    }
    return recorded;
}

/* Written in place: copying data that was just written costs as much as taking a lock. */
void aliquot_charge_before_free(struct aliquot_pending_free *pending, struct aliquot_table *table, uint64_t key) {
    pending->key = key;
    pending->known = aliquot_table_remove(table, key, &pending->allocation);
}

CUresult aliquot_charge_after_free(const struct aliquot_pending_free *pending, struct aliquot_table *table,
                                   CUresult result) {
    if (pending->known && result != CUDA_SUCCESS) {
        aliquot_charge_record(&pending->allocation, table, pending->key);
    } else if (pending->known && !pending->allocation.pooled) {
        aliquot_allocations_release(&pending->allocation);
    }
    return result;
}
