#include "charge/allocations.h"

#include "limits/account.h"
#include "os/fork.h"

struct aliquot_table aliquot_allocations_memory;
struct aliquot_table aliquot_allocations_arrays;
struct aliquot_table aliquot_allocations_imports;
struct aliquot_table aliquot_allocations_heaps;

static void reset_allocations(void) {
    aliquot_table_reset(&aliquot_allocations_memory);
    aliquot_table_reset(&aliquot_allocations_arrays);
    aliquot_table_reset(&aliquot_allocations_imports);
    aliquot_table_reset(&aliquot_allocations_heaps);
}

ALIQUOT_AFTER_FORK(reset_allocations);

void aliquot_allocations_release(const struct aliquot_allocation *allocation) {
    aliquot_account_release((int)allocation->device, allocation->bytes);
}

static void release_unless_pooled(const struct aliquot_allocation *allocation) {
    if (!allocation->pooled) {
        aliquot_allocations_release(allocation);
    }
}

static void release_heap(const struct aliquot_allocation *heap) {
    aliquot_account_release((int)heap->device, aliquot_allocations_heap_charge(heap->bytes));
}

void aliquot_allocations_context_ended(CUcontext context) {
    aliquot_table_remove_owner(&aliquot_allocations_memory, context, aliquot_allocations_release);
    aliquot_table_remove_owner(&aliquot_allocations_arrays, context, aliquot_allocations_release);
    aliquot_table_remove_owner(&aliquot_allocations_imports, context, aliquot_allocations_release);
    aliquot_table_remove_owner(&aliquot_allocations_heaps, context, release_heap);
}

void aliquot_allocations_last_context_ended(int device) {
    aliquot_table_remove_device(&aliquot_allocations_memory, (uint32_t)device, release_unless_pooled);
    aliquot_table_remove_device(&aliquot_allocations_arrays, (uint32_t)device, release_unless_pooled);
    aliquot_table_remove_device(&aliquot_allocations_imports, (uint32_t)device, release_unless_pooled);
    aliquot_table_remove_device(&aliquot_allocations_heaps, (uint32_t)device, release_heap);
}
