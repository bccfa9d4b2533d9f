#include "charge.h"

#include "account.h"
#include "config.h"
#include "context.h"
#include "device.h"
#include "pool.h"

bool aliquot_charge_reserve(int device, uint64_t bytes) {
    return aliquot_context_is_charged(device) && aliquot_pool_reserve(device, bytes);
}

CUresult aliquot_charge_begin(struct aliquot_holding *charge, uint64_t bytes) {
    enum aliquot_mode mode = aliquot_config_mode();
    charge->owner = NULL;
    if (mode != ALIQUOT_MODE_ENFORCE) {
        return mode == ALIQUOT_MODE_CLOSED ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
    }
    CUcontext context = NULL;
    int device = -1;
    CUresult result = aliquot_device_of_current(&context, &device);
    if (result != CUDA_SUCCESS) {
        return result; /* no context, not initialised: what the allocation would have answered */
    }
    if (device < 0 || !aliquot_charge_reserve(device, bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *charge = (struct aliquot_holding){.bytes = bytes, .owner = context, .device = (uint32_t)device};
    return CUDA_SUCCESS;
}

void aliquot_charge_give_back(const struct aliquot_holding *holding) {
    aliquot_account_release((int)holding->device, holding->bytes);
}

bool aliquot_charge_true_up(struct aliquot_holding *charge, uint64_t bytes) {
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

CUresult aliquot_charge_cancel(const struct aliquot_holding *charge, CUresult result) {
    if (charge->owner != NULL) {
        aliquot_charge_give_back(charge);
    }
    return result;
}

bool aliquot_charge_keep(const struct aliquot_holding *charge, struct aliquot_table *table, uint64_t key) {
    struct aliquot_holding old;
    bool replaced = false;
    if (charge->owner == NULL) {
        return true;
    }
    bool kept = aliquot_table_put(table, key, charge, &old, &replaced);
    if (replaced && !old.pooled) {
        aliquot_charge_give_back(&old); /* freed in a way that we don't see: the driver gave the same key again */
    } else if (replaced) {
        aliquot_pool_freed(&old, false);
    }
    return kept;
}

/* In place: a copy of what was just written costs as much as a lock. */
void aliquot_charge_start_freeing(struct aliquot_freeing *freeing, struct aliquot_table *table, uint64_t key) {
    freeing->key = key;
    freeing->known = aliquot_table_take(table, key, &freeing->holding);
}

CUresult aliquot_charge_end_freeing(const struct aliquot_freeing *freeing, struct aliquot_table *table,
                                    CUresult result) {
    if (freeing->known && result != CUDA_SUCCESS) {
        aliquot_charge_keep(&freeing->holding, table, freeing->key);
    } else if (freeing->known && !freeing->holding.pooled) {
        aliquot_charge_give_back(&freeing->holding);
    }
    return result;
}
