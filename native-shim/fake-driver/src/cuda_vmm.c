/*
 * Virtual memory management: physical allocations, reserved address ranges, and mappings of the former into the
 * latter.
 *
 * A physical allocation is a range of an anonymous file. All allocations that cannot be exported share one file,
 * because a file descriptor for each 2 MiB would exceed a process's limit. Each exportable allocation has a file of
 * its own. A mapping is a host mapping of that range, inaccessible until cuMemSetAccess. An allocation is charged from
 * cuMemCreate until its last handle is released and its last mapping is undone. An imported allocation is charged to
 * the exporting process only.
 */
#define _GNU_SOURCE
#include "cuda_vmm.h"
#include "cuda_pool.h"
#include "cuda_shareable.h"
#include "gpu_profile.h"

#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES ((size_t)4096)

struct physical_allocation {
    struct object object;
    CUmemAllocationProp properties;
    struct device *device; /* NULL: host memory */
    size_t bytes;
    int fd;
    off_t offset;
    bool own_file;
    bool imported;
    unsigned handles; /* references that the program holds */
    unsigned mappings;
};

struct reservation {
    uintptr_t base;
    size_t bytes;
    unsigned mappings;
};

/* The owner field of allocations of kind MAPPED_MEMORY. */
struct mapping {
    struct physical_allocation *physical;
    struct reservation *reservation;
    unsigned char device_access[GPU_MAX_PER_NODE]; /* CUmemAccess_flags */
    unsigned char host_access;
};

static void *reservations; /* tree, by address */

/* The file of all allocations that cannot be exported. Released ranges become holes and are not reused. */
static int common_file = -1;
static size_t common_bytes;

static bool is_granularity_aligned(size_t value) {
    return value % VMM_GRANULARITY == 0;
}

/* ---- physical memory ---- */

static bool numa_node_exists(int node) {
    char path[64];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d", node);
    return node == 0 || (node > 0 && access(path, F_OK) == 0);
}

/* Checks whether such memory can be created; *device is NULL for host memory. */
static CUresult check_properties(const CUmemAllocationProp *properties, struct device **device) {
    const CUmemLocation *location = &properties->location;
    unsigned handle_types = properties->requestedHandleTypes;
    *device = NULL;
    if (properties->type == CU_MEM_ALLOCATION_TYPE_MANAGED) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch ((int)location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *device = device_from_ordinal(location->id);
        if (*device == NULL) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        break;
    case CU_MEM_LOCATION_TYPE_HOST:
        if (handle_types != CU_MEM_HANDLE_TYPE_NONE) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        break;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        if (!numa_node_exists(location->id)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (handle_types != CU_MEM_HANDLE_TYPE_NONE) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((handle_types & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (properties->allocFlags.gpuDirectRDMACapable != 0 ||
        (properties->allocFlags.usage & ~CU_MEM_CREATE_USAGE_TILE_POOL) != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

static bool assign_file(struct physical_allocation *physical) {
    if ((physical->properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
        physical->fd = shareable_create(SHAREABLE_ALLOCATION, physical->device, physical->bytes);
        physical->offset = SHAREABLE_DATA_OFFSET;
        physical->own_file = true;
        return physical->fd >= 0;
    }
    if (common_file < 0) {
        common_file = shareable_create(SHAREABLE_ALLOCATION, NULL, 0);
    }
    if (common_file < 0 || !shareable_grow(common_file, common_bytes + physical->bytes)) {
        return false;
    }
    physical->fd = common_file;
    physical->offset = SHAREABLE_DATA_OFFSET + (off_t)common_bytes;
    common_bytes += physical->bytes;
    return true;
}

/* Frees the allocation once it has no handle and no mapping. */
static void free_if_unused(struct physical_allocation *physical) {
    if (physical->handles != 0 || physical->mappings != 0) {
        return;
    }
    if (physical->own_file) {
        close(physical->fd);
    } else {
        shareable_punch_hole(physical->fd, physical->offset, physical->bytes);
    }
    if (physical->device != NULL && !physical->imported) {
        memory_release(physical->device, physical->bytes);
        device_release(physical->device);
    }
    object_delete(physical);
}

API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                         unsigned long long flags) {
    struct device *device;
    if (handle == NULL || prop == NULL || size == 0 || !is_granularity_aligned(size) || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_properties(prop, &device);
    if (result != CUDA_SUCCESS) {
        return leave(result);
    }
    if (size > GPU_MAX_MEMORY_BYTES) {
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (device != NULL) {
        result = device_acquire(device);
        if (result != CUDA_SUCCESS) {
            return leave(result);
        }
        if (!memory_reserve(device, size)) {
            device_release(device);
            return leave(CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    struct physical_allocation *physical = object_new(KIND_PHYSICAL_ALLOCATION, sizeof *physical, NULL);
    if (physical != NULL) {
        physical->properties = *prop;
        physical->properties.allocFlags.compressionType = 0; /* a hint; there is no compression */
        physical->device = device;
        physical->bytes = size;
        physical->handles = 1;
        if (assign_file(physical)) {
            *handle = (uintptr_t)physical;
            return leave(CUDA_SUCCESS);
        }
        object_delete(physical);
    }
    log_line("the host cannot create a file for %zu bytes of memory", size);
    if (device != NULL) {
        memory_release(device, size);
        device_release(device);
    }
    return leave(CUDA_ERROR_OUT_OF_MEMORY);
}

/* Takes the lock if handle refers to a physical allocation that the program holds. */
static CUresult enter_physical(CUmemGenericAllocationHandle handle, struct physical_allocation **physical) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *physical = object_find(KIND_PHYSICAL_ALLOCATION, (const void *)(uintptr_t)handle);
    return *physical != NULL && (*physical)->handles != 0 ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_VALUE);
}

API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct physical_allocation *physical;
    CUresult result = enter_physical(handle, &physical);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    physical->handles--;
    free_if_unused(physical);
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
    if (handle == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct allocation *allocation = memory_find((uintptr_t)addr);
    if (allocation == NULL || allocation->kind != MAPPED_MEMORY) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct physical_allocation *physical = ((struct mapping *)allocation->owner)->physical;
    physical->handles++;
    *handle = (uintptr_t)physical;
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                           CUmemAllocationGranularity_flags option) {
    struct device *device;
    if (granularity == NULL || prop == NULL ||
        (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_properties(prop, &device);
    if (result == CUDA_SUCCESS) {
        *granularity = VMM_GRANULARITY;
    }
    return leave(result);
}

CUresult physical_allocation_map(CUmemGenericAllocationHandle handle, const struct device *device, size_t offset,
                                 size_t bytes, struct physical_allocation **physical, void **start) {
    struct physical_allocation *found = object_find(KIND_PHYSICAL_ALLOCATION, (const void *)(uintptr_t)handle);
    if (found == NULL || found->handles == 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (found->device != device || (found->properties.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL) == 0 ||
        !is_granularity_aligned(offset) || offset > found->bytes || bytes > found->bytes - offset) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *start = shareable_map(found->fd, found->offset + (off_t)offset, bytes);
    if (*start == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    found->mappings++;
    *physical = found;
    return CUDA_SUCCESS;
}

void physical_allocation_unmap(struct physical_allocation *physical) {
    physical->mappings--;
    free_if_unused(physical);
}

/* ---- shareable handles ---- */

API CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                          CUmemAllocationHandleType handleType, unsigned long long flags) {
    struct physical_allocation *physical;
    if (shareableHandle == NULL || flags != 0 || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_physical(handle, &physical);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!physical->own_file) {
        return leave(CUDA_ERROR_INVALID_VALUE); /* it was not created as exportable */
    }
    int fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *(int *)shareableHandle = fd;
    return leave(CUDA_SUCCESS);
}

struct own_allocation {
    uint64_t id;
    struct physical_allocation *found;
};

static void match_own_allocation(void *object, void *data) {
    struct physical_allocation *physical = object;
    struct own_allocation *search = data;
    if (physical->own_file && !physical->imported && shareable_id(physical->fd) == search->id) {
        search->found = physical;
    }
}

API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                            CUmemAllocationHandleType shHandleType) {
    struct device *device;
    size_t bytes;
    uint64_t id;
    if (handle == NULL || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    int fd = shareable_open((int)(intptr_t)osHandle, SHAREABLE_ALLOCATION, &device, &bytes, &id);
    if (fd < 0 || bytes == 0 || !is_granularity_aligned(bytes)) {
        if (fd >= 0) {
            close(fd);
        }
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct own_allocation own = {.id = id};
    if (gpu_profile()->own_import_is_same) {
        objects_for_each(KIND_PHYSICAL_ALLOCATION, match_own_allocation, &own);
    }
    if (own.found != NULL) {
        close(fd);
        own.found->handles++;
        *handle = (uintptr_t)own.found;
        return leave(CUDA_SUCCESS);
    }
    struct physical_allocation *physical = object_new(KIND_PHYSICAL_ALLOCATION, sizeof *physical, NULL);
    if (physical == NULL) {
        close(fd);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    physical->properties = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, device_ordinal(device)}};
    physical->device = device;
    physical->bytes = bytes;
    physical->fd = fd;
    physical->offset = SHAREABLE_DATA_OFFSET;
    physical->own_file = physical->imported = true;
    physical->handles = 1;
    *handle = (uintptr_t)physical;
    return leave(CUDA_SUCCESS);
}

/* ---- address ranges ---- */

/* Overlapping ranges compare as equal. */
static int compare_reservations(const void *a, const void *b) {
    const struct reservation *left = a, *right = b;
    if (left->base + left->bytes <= right->base) {
        return -1;
    }
    return right->base + right->bytes <= left->base;
}

/* Returns the reservation that contains the whole range. */
static struct reservation *find_reservation(uintptr_t base, size_t bytes) {
    const struct reservation range = {.base = base, .bytes = bytes};
    if (bytes == 0 || bytes > UINTPTR_MAX - base) {
        return NULL;
    }
    struct reservation *const *node = tfind(&range, &reservations, compare_reservations);
    if (node == NULL || base < (*node)->base || base + bytes > (*node)->base + (*node)->bytes) {
        return NULL;
    }
    return *node;
}

static void *reserve_addresses(void *hint, size_t bytes, size_t alignment) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *all = mmap(hint, bytes, PROT_NONE, flags, -1, 0);
    if (all != MAP_FAILED && (uintptr_t)all % alignment == 0) {
        return all;
    }
    if (all != MAP_FAILED) {
        munmap(all, bytes);
    }
    all = mmap(NULL, bytes + alignment, PROT_NONE, flags, -1, 0);
    if (all == MAP_FAILED) {
        return NULL;
    }
    uintptr_t start = (uintptr_t)all, aligned = (start + alignment - 1) & ~(alignment - 1);
    if (aligned != start) {
        munmap(all, aligned - start);
    }
    munmap((void *)(aligned + bytes), start + alignment - aligned);
    return (void *)aligned;
}

API CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                 unsigned long long flags) {
    if (ptr == NULL || size == 0 || size % PAGE_BYTES != 0 || addr % PAGE_BYTES != 0 ||
        (alignment & (alignment - 1)) != 0 || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (alignment < VMM_GRANULARITY) {
        alignment = VMM_GRANULARITY;
    }
    if (size > SIZE_MAX / 4 || alignment > SIZE_MAX / 4) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct reservation *reservation = calloc(1, sizeof *reservation);
    void *start = reservation != NULL ? reserve_addresses((void *)(uintptr_t)addr, size, alignment) : NULL;
    if (start != NULL) {
        *reservation = (struct reservation){.base = (uintptr_t)start, .bytes = size};
        if (tsearch(reservation, &reservations, compare_reservations) != NULL) {
            *ptr = reservation->base;
            return leave(CUDA_SUCCESS);
        }
        munmap(start, size);
    }
    free(reservation);
    return leave(CUDA_ERROR_OUT_OF_MEMORY);
}

API CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct reservation *reservation = find_reservation((uintptr_t)ptr, size);
    if (reservation == NULL || reservation->base != ptr || reservation->bytes != size || reservation->mappings != 0) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    memory_unmap((void *)reservation->base, size);
    tdelete(reservation, &reservations, compare_reservations);
    free(reservation);
    return leave(CUDA_SUCCESS);
}

/* ---- mapping ---- */

/* Whether a range has no mapping. */
static bool is_unmapped(uintptr_t base, size_t bytes) {
    for (size_t offset = 0; offset < bytes; offset += VMM_GRANULARITY) {
        if (memory_find(base + offset) != NULL) {
            return false;
        }
    }
    return true;
}

API CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                      unsigned long long flags) {
    struct physical_allocation *physical;
    if (size == 0 || !is_granularity_aligned(ptr) || !is_granularity_aligned(size) || offset != 0 || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_physical(handle, &physical);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct reservation *reservation = find_reservation((uintptr_t)ptr, size);
    if (size > physical->bytes || (physical->properties.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL) != 0 ||
        reservation == NULL || !is_unmapped((uintptr_t)ptr, size)) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct mapping *mapping = calloc(1, sizeof *mapping);
    const struct allocation values = {.base = (uintptr_t)ptr,
                                      .bytes = size,
                                      .kind = MAPPED_MEMORY,
                                      .device = physical->device,
                                      .owner = mapping,
                                      .file_backed = true};
    struct allocation *allocation = mapping != NULL ? memory_add(&values) : NULL;
    if (allocation == NULL || mmap((void *)(uintptr_t)ptr, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
                                   physical->fd, physical->offset) == MAP_FAILED) {
        if (allocation != NULL) {
            memory_remove(allocation);
        }
        free(mapping);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    (void)madvise((void *)(uintptr_t)ptr, size, MADV_DONTFORK);
    mapping->physical = physical;
    mapping->reservation = reservation;
    physical->mappings++;
    reservation->mappings++;
    return leave(CUDA_SUCCESS);
}

/*
 * Calls visit for all mappings of a range. If the range does not consist of whole mappings, calls nothing and returns
 * false.
 */
static bool visit_mappings(CUdeviceptr start, size_t bytes, void (*visit)(struct allocation *mapping, const void *data),
                           const void *data) {
    if (bytes == 0 || bytes > UINT64_MAX - start) {
        return false;
    }
    for (uintptr_t at = (uintptr_t)start; at < start + bytes;) {
        const struct allocation *mapping = memory_find(at);
        if (mapping == NULL || mapping->kind != MAPPED_MEMORY || mapping->base != at ||
            mapping->bytes > start + bytes - at) {
            return false;
        }
        at += mapping->bytes;
    }
    for (uintptr_t at = (uintptr_t)start; at < start + bytes;) {
        struct allocation *mapping = memory_find(at);
        at += mapping->bytes;
        visit(mapping, data);
    }
    return true;
}

static void unmap_mapping(struct allocation *allocation, const void *data) {
    (void)data;
    struct mapping *mapping = allocation->owner;
    /* If the host has no memory for that, the old mapping stays; the driver no longer finds it. */
    (void)mmap((void *)allocation->base, allocation->bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    memory_remove(allocation);
    mapping->reservation->mappings--;
    physical_allocation_unmap(mapping->physical);
    free(mapping);
}

API CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return leave(visit_mappings(ptr, size, unmap_mapping, NULL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

/* ---- access ---- */

static unsigned combined_access(const struct mapping *mapping) {
    unsigned all = mapping->host_access;
    for (size_t i = 0; i < device_count(); i++) {
        all |= mapping->device_access[i];
    }
    return all;
}

bool allows_access(const struct allocation *allocation, bool writing) {
    const unsigned needed = writing ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    return allocation->kind != MAPPED_MEMORY || (combined_access(allocation->owner) & needed) == needed;
}

CUmemAllocationHandleType mapping_handle_types(const struct allocation *mapping) {
    return ((const struct mapping *)mapping->owner)->physical->properties.requestedHandleTypes;
}

static bool is_host_location(const CUmemLocation *location) {
    return location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

static void set_access(struct allocation *allocation, const void *data) {
    const CUmemAccessDesc *access = data;
    struct mapping *mapping = allocation->owner;
    if (is_host_location(&access->location)) {
        mapping->host_access = (unsigned char)access->flags;
    } else {
        mapping->device_access[access->location.id] = (unsigned char)access->flags;
    }
    unsigned all = combined_access(mapping);
    int protection = (all & CU_MEM_ACCESS_FLAGS_PROT_READ) != 0 ? PROT_READ : PROT_NONE;
    if (all == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        protection |= PROT_WRITE;
    }
    (void)mprotect((void *)allocation->base, allocation->bytes, protection);
}

static void clear_if_device_memory(struct allocation *allocation, const void *data) {
    if (allocation->device != NULL) {
        **(bool *const *)data = false;
    }
}

API CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
    if (desc == NULL || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    bool host_access = true, *pointer = &host_access;
    if (!visit_mappings(ptr, size, clear_if_device_memory, &pointer)) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < count; i++) {
        unsigned flags = desc[i].flags;
        if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            return leave(CUDA_ERROR_INVALID_VALUE);
        }
        if (is_host_location(&desc[i].location) ? !host_access : desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
            return leave(CUDA_ERROR_INVALID_VALUE);
        }
        if (!is_host_location(&desc[i].location) && device_from_ordinal(desc[i].location.id) == NULL) {
            return leave(CUDA_ERROR_INVALID_DEVICE);
        }
    }
    for (size_t i = 0; i < count; i++) {
        (void)visit_mappings(ptr, size, set_access, &desc[i]);
    }
    return leave(CUDA_SUCCESS);
}
