#include "memory/vmm.h"

#include "charge/charge.h"
#include "driver/device.h"
#include "limits/account.h"
#include "limits/config.h"
#include "os/fork.h"
#include "os/slab.h"

#include <pthread.h>
#include <stdatomic.h>

#define BUCKETS 4096

/* An allocation of physical memory. */
struct physical_allocation {
    uint64_t bytes;
    int device;
    unsigned references; /* unreleased handles, mappings, driver calls in progress */
};

enum reference_kind { REFERENCE_HANDLE, REFERENCE_MAPPING, REFERENCE_TILE };

/* A reference to an allocation. */
struct reference {
    enum reference_kind kind;
    uint64_t key;                           /* handle, address or array */
    uint64_t size;                          /* of a mapping */
    CUarrayMapInfo tile;                    /* for a tile: the part of the array */
    struct physical_allocation *allocation; /* NULL: a mapping of uncharged memory */
    struct reference *next;                 /* in its bucket, or in a list of unlinked references */
};

/* Guards the following; the driver is not called under it. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct reference *buckets[BUCKETS];
static struct aliquot_slab references, allocations;
static atomic_bool any_tile;

static void reset_mappings(void) {
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* a thread of the parent may have held it */
    memset(buckets, 0, sizeof buckets);
    references.unused = NULL;
    allocations.unused = NULL;
    atomic_store(&any_tile, false);
}

ALIQUOT_AFTER_FORK(reset_mappings);

/* ---- these require the mutex ---- */

static struct reference **bucket_of(enum reference_kind kind, uint64_t key) {
    return &buckets[((key ^ (uint64_t)kind << 32) * UINT64_C(0x9e3779b97f4a7c15)) >> 52];
}

static struct reference **find_reference(enum reference_kind kind, uint64_t key) {
    struct reference **link = bucket_of(kind, key);
    while (*link != NULL && ((*link)->kind != kind || (*link)->key != key)) {
        link = &(*link)->next;
    }
    return link;
}

static struct reference *unlink_reference(struct reference **link) {
    struct reference *reference = *link;
    *link = reference->next;
    return reference;
}

static void link_reference(struct reference *reference) {
    struct reference **bucket = bucket_of(reference->kind, reference->key);
    reference->next = *bucket;
    *bucket = reference;
}

static void release_allocation(struct physical_allocation *allocation) {
    if (allocation != NULL && --allocation->references == 0) {
        aliquot_account_release(allocation->device, allocation->bytes);
        aliquot_slab_give(&allocations, allocation);
    }
}

static void release_reference(struct reference *reference) {
    release_allocation(reference->allocation);
    aliquot_slab_give(&references, reference);
}

/* False: out of memory. */
static bool add_reference(enum reference_kind kind, uint64_t key, uint64_t size,
                          struct physical_allocation *allocation) {
    struct reference *reference = aliquot_slab_take(&references, sizeof *reference);
    if (reference == NULL) {
        return false;
    }
    *reference = (struct reference){.kind = kind, .key = key, .size = size, .allocation = allocation};
    if (allocation != NULL) {
        allocation->references++;
    }
    link_reference(reference);
    return true;
}

/* The mapping that contains an address. */
static struct reference *mapping_containing(uint64_t address) {
    struct reference *found = *find_reference(REFERENCE_MAPPING, address);
    for (size_t i = 0; i < BUCKETS && found == NULL; i++) {
        for (struct reference *one = buckets[i]; one != NULL && found == NULL; one = one->next) {
            found = one->kind == REFERENCE_MAPPING && address - one->key < one->size ? one : NULL;
        }
    }
    return found;
}

/* Unlinks all mappings in a range. They are usually adjacent; if one is unknown, all buckets are searched. */
static struct reference *unlink_mappings(uint64_t start, uint64_t size) {
    struct reference *unlinked = NULL;
    uint64_t done = 0;
    while (done < size) {
        struct reference **link = find_reference(REFERENCE_MAPPING, start + done);
        if (*link == NULL || (*link)->size == 0) {
            break;
        }
        struct reference *mapping = unlink_reference(link);
        done += mapping->size;
        mapping->next = unlinked;
        unlinked = mapping;
    }
    for (size_t i = 0; i < BUCKETS && done < size; i++) {
        for (struct reference **link = &buckets[i]; *link != NULL;) {
            if ((*link)->kind == REFERENCE_MAPPING && (*link)->key - start < size) {
                struct reference *mapping = unlink_reference(link);
                mapping->next = unlinked;
                unlinked = mapping;
            } else {
                link = &(*link)->next;
            }
        }
    }
    return unlinked;
}

/* ---- */

static bool is_enforcing(void) {
    return aliquot_config_mode() == ALIQUOT_MODE_ENFORCE;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
                     unsigned long long flags) {
    ALIQUOT_REQUIRE(cuMemCreate)
    CUmemGenericAllocationHandle created = 0;
    enum aliquot_mode mode = aliquot_config_mode();
    if (mode == ALIQUOT_MODE_REFUSE) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if (mode != ALIQUOT_MODE_ENFORCE || properties == NULL ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return aliquot_real.cuMemCreate(handle, size, properties, flags);
    }
    int device = aliquot_device_of_ordinal(properties->location.id);
    if (device < 0 || !aliquot_charge_reserve(device, size)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = aliquot_real.cuMemCreate(handle == NULL ? NULL : &created, size, properties, flags);
    if (result != CUDA_SUCCESS) {
        aliquot_account_release(device, size);
        return result;
    }
    pthread_mutex_lock(&mutex);
    struct reference **old = find_reference(REFERENCE_HANDLE, created);
    if (*old != NULL) {
        release_reference(unlink_reference(old)); /* released without a hook */
    }
    struct physical_allocation *allocation = aliquot_slab_take(&allocations, sizeof *allocation);
    bool recorded = false;
    if (allocation != NULL) {
        *allocation = (struct physical_allocation){.bytes = size, .device = device};
        recorded = add_reference(REFERENCE_HANDLE, created, 0, allocation);
    }
    if (!recorded && allocation != NULL) {
        aliquot_slab_give(&allocations, allocation);
    }
    pthread_mutex_unlock(&mutex);
    if (!recorded) {
        aliquot_real.cuMemRelease(created);
        aliquot_account_release(device, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = created;
    return CUDA_SUCCESS;
}

/* A handle that was retained repeatedly has a reference for each time. */
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    ALIQUOT_REQUIRE(cuMemRelease)
    pthread_mutex_lock(&mutex);
    struct reference **link = find_reference(REFERENCE_HANDLE, handle);
    struct reference *reference =
        *link == NULL ? NULL : unlink_reference(link); /* before another thread may get the same handle */
    pthread_mutex_unlock(&mutex);
    CUresult result = aliquot_real.cuMemRelease(handle);
    if (reference != NULL) {
        pthread_mutex_lock(&mutex);
        if (result == CUDA_SUCCESS) {
            release_reference(reference);
        } else {
            link_reference(reference);
        }
        pthread_mutex_unlock(&mutex);
    }
    return result;
}

/* Retains the allocation of a handle during a driver call; NULL: it is not charged. */
static struct physical_allocation *retain_allocation(CUmemGenericAllocationHandle handle) {
    struct reference *reference = *find_reference(REFERENCE_HANDLE, handle);
    if (reference != NULL) {
        reference->allocation->references++;
    }
    return reference == NULL ? NULL : reference->allocation;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    ALIQUOT_REQUIRE(cuMemMap)
    if (!is_enforcing()) {
        return aliquot_real.cuMemMap(address, size, offset, handle, flags);
    }
    pthread_mutex_lock(&mutex);
    struct physical_allocation *allocation = retain_allocation(handle);
    pthread_mutex_unlock(&mutex);
    CUresult result = aliquot_real.cuMemMap(address, size, offset, handle, flags);
    bool recorded = true;
    pthread_mutex_lock(&mutex);
    if (result == CUDA_SUCCESS) {
        struct reference **old = find_reference(REFERENCE_MAPPING, address);
        if (*old != NULL) {
            release_reference(unlink_reference(old)); /* unmapped without a hook */
        }
        recorded = add_reference(REFERENCE_MAPPING, address, size, allocation);
    }
    release_allocation(allocation);
    pthread_mutex_unlock(&mutex);
    if (!recorded) {
        aliquot_real.cuMemUnmap(address, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    ALIQUOT_REQUIRE(cuMemUnmap)
    pthread_mutex_lock(&mutex);
    struct reference *unlinked = is_enforcing() ? unlink_mappings(address, size) : NULL;
    pthread_mutex_unlock(&mutex);
    CUresult result = aliquot_real.cuMemUnmap(address, size);
    pthread_mutex_lock(&mutex);
    while (unlinked != NULL) {
        struct reference *mapping = unlinked;
        unlinked = unlinked->next;
        if (result == CUDA_SUCCESS) {
            release_reference(mapping);
        } else {
            link_reference(mapping);
        }
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

/* After the driver has returned a handle, which needs a release of its own, of the allocation that is known by a handle
   or an address. */
static CUresult add_handle(CUmemGenericAllocationHandle handle, enum reference_kind kind, uint64_t key) {
    if (!is_enforcing()) {
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&mutex);
    struct reference *known = kind == REFERENCE_HANDLE ? *find_reference(kind, key) : mapping_containing(key);
    bool recorded =
        known == NULL || known->allocation == NULL || add_reference(REFERENCE_HANDLE, handle, 0, known->allocation);
    pthread_mutex_unlock(&mutex);
    if (!recorded) {
        aliquot_real.cuMemRelease(handle);
    }
    return recorded ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    ALIQUOT_REQUIRE(cuMemRetainAllocationHandle)
    CUresult result = aliquot_real.cuMemRetainAllocationHandle(handle, address);
    return result == CUDA_SUCCESS ? add_handle(*handle, REFERENCE_MAPPING, (uint64_t)(uintptr_t)address) : result;
}

/* Imported memory is charged where it was created. The driver may return an own handle again. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared,
                                        CUmemAllocationHandleType type) {
    ALIQUOT_REQUIRE(cuMemImportFromShareableHandle)
    CUresult result = aliquot_real.cuMemImportFromShareableHandle(handle, shared, type);
    return result == CUDA_SUCCESS ? add_handle(*handle, REFERENCE_HANDLE, *handle) : result;
}

/* ---- sparse arrays ---- */

static uint64_t array_in(const CUarrayMapInfo *info) {
    return (uint64_t)(uintptr_t)(info->resourceType == CU_RESOURCE_TYPE_ARRAY ? (const void *)info->resource.array
                                                                              : (const void *)info->resource.mipmap);
}

static bool is_same_tile(const CUarrayMapInfo *one, const CUarrayMapInfo *other) {
    return one->subresourceType == other->subresourceType &&
           (one->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL
                ? one->subresource.miptail.layer == other->subresource.miptail.layer &&
                      one->subresource.miptail.offset == other->subresource.miptail.offset &&
                      one->subresource.miptail.size == other->subresource.miptail.size
                : memcmp(&one->subresource.sparseLevel, &other->subresource.sparseLevel,
                         sizeof one->subresource.sparseLevel) == 0);
}

/* Requires the mutex. If tiles are mapped or unmapped in other pieces than before, the old pieces stay charged until
   the array ends: rather too much than too little. */
static void record_tile(const CUarrayMapInfo *info) {
    uint64_t array = array_in(info);
    struct reference **link = bucket_of(REFERENCE_TILE, array);
    while (*link != NULL &&
           !((*link)->kind == REFERENCE_TILE && (*link)->key == array && is_same_tile(&(*link)->tile, info))) {
        link = &(*link)->next;
    }
    struct reference *old = *link == NULL ? NULL : unlink_reference(link);
    if (info->memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
        struct reference *handle = *find_reference(REFERENCE_HANDLE, info->memHandle.memHandle);
        if (handle != NULL && add_reference(REFERENCE_TILE, array, 0, handle->allocation)) {
            (*bucket_of(REFERENCE_TILE, array))->tile = *info;
            atomic_store(&any_tile, true);
        }
    }
    if (old != NULL) {
        release_reference(old);
    }
}

static void record_tiles(const CUarrayMapInfo *list, unsigned count) {
    pthread_mutex_lock(&mutex);
    for (unsigned i = 0; i < count; i++) {
        record_tile(&list[i]);
    }
    pthread_mutex_unlock(&mutex);
}

#define MAP_ARRAY(symbol)                                                                                              \
    CUresult symbol(CUarrayMapInfo *list, unsigned int count, CUstream stream) {                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        CUresult result = aliquot_real.symbol(list, count, stream);                                                    \
        if (result == CUDA_SUCCESS && is_enforcing()) {                                                                \
            record_tiles(list, count);                                                                                 \
        }                                                                                                              \
        return result;                                                                                                 \
    }

MAP_ARRAY(cuMemMapArrayAsync)
MAP_ARRAY(cuMemMapArrayAsync_ptsz)

void aliquot_vmm_array_destroyed(const void *array) {
    if (!atomic_load(&any_tile)) {
        return;
    }
    uint64_t key = (uint64_t)(uintptr_t)array;
    pthread_mutex_lock(&mutex);
    for (struct reference **link = bucket_of(REFERENCE_TILE, key); *link != NULL;) {
        if ((*link)->kind == REFERENCE_TILE && (*link)->key == key) {
            release_reference(unlink_reference(link));
        } else {
            link = &(*link)->next;
        }
    }
    pthread_mutex_unlock(&mutex);
}
