#include "external.h"

#include "account.h"
#include "charge.h"
#include "config.h"
#include "device.h"
#include "shared.h"

static struct aliquot_table imports;

void aliquot_external_reset(void) {
    aliquot_table_reset(&imports);
}

void aliquot_external_context_ended(CUcontext context) {
    aliquot_table_remove_owner(&imports, context, aliquot_charge_release);
}

void aliquot_external_last_context_ended(int device) {
    aliquot_table_remove_device(&imports, (uint32_t)device, aliquot_charge_release);
}

/* Only a file descriptor of a graphics API means memory of this GPU: NvSciBuf and DMA buffers may be of any device.
   Once the node agent knows the memory as the container's, too, it counts twice, until its next report. */
CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description) {
    ALIQUOT_REQUIRE(cuImportExternalMemory)
    CUcontext context = NULL;
    int device = -1;
    CUresult result = aliquot_real.cuImportExternalMemory(memory, description);
    if (result != CUDA_SUCCESS || description->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD ||
        aliquot_config_mode() != ALIQUOT_MODE_ENFORCE || aliquot_device_of_current(&context, &device) != CUDA_SUCCESS ||
        device < 0) {
        return result;
    }
    aliquot_charge_reserve(device, 0); /* charges the context, which claims a slot */
    struct aliquot_allocation import = {.bytes = description->size, .owner = context, .device = (uint32_t)device};
    if (aliquot_shared_slot_if_any() >= 0) {
        aliquot_account_force(device, import.bytes);
        if (!aliquot_charge_record(&import, &imports, (uint64_t)(uintptr_t)*memory)) {
            aliquot_charge_release(&import); /* no memory for the record */
        }
    }
    return result;
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
    ALIQUOT_REQUIRE(cuDestroyExternalMemory)
    struct aliquot_pending_free pending;
    aliquot_charge_before_free(&pending, &imports, (uint64_t)(uintptr_t)memory);
    return aliquot_charge_after_free(&pending, &imports, aliquot_real.cuDestroyExternalMemory(memory));
}
