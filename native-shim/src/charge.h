/*
 * One allocation, from before the driver is asked until it is remembered: reserve, ask the driver, true up to what it
 * really took, remember. Whatever fails on the way, nothing of it stays.
 */
#ifndef ALIQUOT_CHARGE_H
#define ALIQUOT_CHARGE_H

#include "abi.h"
#include "lookup.h"
#include "table.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Goes through all steps on the current context's device, and returns from the hook unless all succeed:
 * expected  bytes to reserve
 * call      asks the driver
 * taken     bytes that it took, as seen after the call
 * key       under which table remembers them
 * undo      gives them back to the driver
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
        if (!aliquot_charge_true_up(&charged_allocation, taken) ||                                                     \
            !aliquot_charge_record(&charged_allocation, table, (uint64_t)(uintptr_t)(key))) {                          \
            undo;                                                                                                      \
            return aliquot_charge_cancel(&charged_allocation, CUDA_ERROR_OUT_OF_MEMORY);                               \
        }                                                                                                              \
    } while (0)

/* Whether bytes may be had on a device: reserves them, if need be after the pools have given back what they hold in
   vain. Charges the context too, where its making was not seen. */
bool aliquot_charge_reserve(int device, uint64_t bytes);

/* Reserves on the current context's device. With an owner of NULL nothing was reserved: there are no limits. */
CUresult aliquot_charge_begin(struct aliquot_allocation *charge, uint64_t bytes);

/* False: what the driver really took is over the limit. */
bool aliquot_charge_true_up(struct aliquot_allocation *charge, uint64_t bytes);

/* After the driver failed, with its result. */
CUresult aliquot_charge_cancel(const struct aliquot_allocation *charge, CUresult result);

/* After the driver made it. False: it can't be remembered, so it must go. */
bool aliquot_charge_record(const struct aliquot_allocation *charge, struct aliquot_table *table, uint64_t key);

void aliquot_charge_release(const struct aliquot_allocation *allocation);

/* A key is forgotten before the driver frees it, since it may be another thread's right after. What is not known
   (imported, or nonsense) is the driver's business. */
struct aliquot_pending_free {
    bool known;
    uint64_t key;
    struct aliquot_allocation allocation;
};

void aliquot_charge_before_free(struct aliquot_pending_free *pending, struct aliquot_table *table, uint64_t key);
CUresult aliquot_charge_after_free(const struct aliquot_pending_free *pending, struct aliquot_table *table,
                                   CUresult result);

#endif
