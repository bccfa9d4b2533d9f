/* Charges memory that another API, such as Vulkan, has allocated and the program imports. It exists already, so that an
   import is never refused for the limit; later allocations are. */
#include "charge/allocations.h"
#include "charge/charge.h"
#include "driver/device.h"
#include "limits/account.h"
#include "limits/config.h"
#include "os/shared.h"

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
        if (!aliquot_charge_record(&import, &aliquot_allocations_imports, (uint64_t)(uintptr_t)*memory)) {
            aliquot_allocations_release(&import); /* no memory for the record */
        }
    }
    return result;
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
    ALIQUOT_REQUIRE(cuDestroyExternalMemory)
    struct aliquot_pending_free pending;
    aliquot_charge_before_free(&pending, &aliquot_allocations_imports, (uint64_t)(uintptr_t)memory);
    return aliquot_charge_after_free(&pending, &aliquot_allocations_imports,
                                     aliquot_real.cuDestroyExternalMemory(memory));
}
