/*
 * The steps of one allocation: reserve the bytes, forward the call, adjust the charge to what the driver really took,
 * record the allocation. A failure in any step undoes the steps before it.
 */
#ifndef ALIQUOT_CHARGE_H
#define ALIQUOT_CHARGE_H

#include "driver/abi.h"
#include "driver/lookup.h"
#include "os/table.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Performs all steps on the device of the current context, and returns from the hook unless all succeed:
 *
 *     expected  bytes to reserve
 *     call      forwards to the driver
 *     taken     bytes that the driver took, evaluated after the call
 *     key       address or handle under which table records the allocation
 *     undo      frees it in the driver
 */
#define ALIQUOT_CHARGED_ALLOCATION(table, expected, call, taken, key, undo)                                            \
    do {                                                                                                               \
        struct aliquot_allocation charged_allocation;                                                                  \
        CUresult charge_result = aliquot_charge_begin(&charged_allocation, expected);                                  \
        if (charge_result != CUDA_SUCCESS) {                                                                           \
            return charge_result;                                                                                      \
        }                                                                                                              \
        charge_result = call;                                                                                          \
        if (charge_result != CUDA_SUCCESS) {                                                                           \
            return aliquot_charge_cancel(&charged_allocation, charge_result);                                          \
        }                                                                                                              \
        if (!aliquot_charge_adjust(&charged_allocation, taken) ||                                                      \
            !aliquot_charge_record(&charged_allocation, table, (uint64_t)(uintptr_t)(key))) {                          \
            undo;                                                                                                      \
            return aliquot_charge_cancel(&charged_allocation, CUDA_ERROR_OUT_OF_MEMORY);                               \
        }                                                                                                              \
    } while (0)

/* Reserves bytes on a device. If they do not fit, memory pools first release what they hold unused. Also charges the
   primary context if its creation bypassed the hooks. False: no room. */
bool aliquot_charge_reserve(int device, uint64_t bytes);

/* Reserves bytes on the device of the current context. Leaves charge->owner NULL if no limits apply; then nothing is
   reserved. Returns the error that the hook must return. */
CUresult aliquot_charge_begin(struct aliquot_allocation *charge, uint64_t bytes);

/* Changes the charge to the bytes that the driver took. False: they exceed the limit. */
bool aliquot_charge_adjust(struct aliquot_allocation *charge, uint64_t bytes);

/* Releases the charge after a failed call. Returns result. */
CUresult aliquot_charge_cancel(const struct aliquot_allocation *charge, CUresult result);

/* Records a new allocation. False: there is no memory for the record, so the caller must free the allocation. */
bool aliquot_charge_record(const struct aliquot_allocation *charge, struct aliquot_table *table, uint64_t key);

/* A free in progress. The record is removed before the driver frees the memory, because another thread may get the
   same key immediately after. An unknown key (imported, or invalid) is passed to the driver without accounting. */
struct aliquot_pending_free {
    bool known;
    uint64_t key;
    struct aliquot_allocation allocation;
};

void aliquot_charge_before_free(struct aliquot_pending_free *pending, struct aliquot_table *table, uint64_t key);
CUresult aliquot_charge_after_free(const struct aliquot_pending_free *pending, struct aliquot_table *table,
                                   CUresult result);

#endif
