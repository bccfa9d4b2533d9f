#define _GNU_SOURCE
#include "cuda_graph_memory.h"

#include <stdlib.h>
#include <sys/mman.h>

#define GRAPH_MEMORY_ALIGNMENT ((size_t)2 << 20)

struct graph_memory {
    uintptr_t base;
    size_t bytes;
    struct device *device;
    struct allocation *allocation; /* NULL: not allocated */
    bool graph_deleted;            /* the graph has been deleted */
    LIST_ENTRY(graph_memory) list;
};

static LIST_HEAD(, graph_memory) graph_memories;
static struct memory_usage graph_usage[GPU_MAX_PER_NODE];

static struct memory_usage *graph_usage_of(const struct device *device) {
    return &graph_usage[device_ordinal(device)];
}

CUresult graph_memory_new(struct device *device, size_t bytes, struct graph_memory **made) {
    if (bytes == 0 || bytes > GPU_MAX_MEMORY_BYTES) {
        return bytes == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct graph_memory *memory = calloc(1, sizeof *memory);
    void *start = memory != NULL ? memory_map(round_up(bytes, GRAPH_MEMORY_ALIGNMENT)) : NULL;
    if (start == NULL) {
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *memory = (struct graph_memory){.base = (uintptr_t)start, .bytes = bytes, .device = device};
    LIST_INSERT_HEAD(&graph_memories, memory, list);
    *made = memory;
    return CUDA_SUCCESS;
}

CUdeviceptr graph_memory_address(const struct graph_memory *memory) {
    return memory->base;
}

struct graph_memory *graph_memory_find(CUdeviceptr address) {
    struct graph_memory *memory = LIST_FIRST(&graph_memories);
    while (memory != NULL && memory->base != address) {
        memory = LIST_NEXT(memory, list);
    }
    return memory;
}

bool graph_memory_covers(uintptr_t address, size_t bytes) {
    for (const struct graph_memory *memory = LIST_FIRST(&graph_memories); memory != NULL;
         memory = LIST_NEXT(memory, list)) {
        if (address >= memory->base && address - memory->base < memory->bytes) {
            return bytes <= memory->bytes - (address - memory->base);
        }
    }
    return false;
}

CUresult graph_memory_allocate(struct graph_memory *memory) {
    struct memory_usage *usage = graph_usage_of(memory->device);
    if (memory->allocation != NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t whole = round_up(memory->bytes, GRAPH_MEMORY_ALIGNMENT);
    size_t cached = usage->reserved - usage->used, more = whole > cached ? whole - cached : 0;
    if (more != 0 && !gpu_reserve(memory->device->gpu, more)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const struct allocation values = {
        .base = memory->base, .bytes = memory->bytes, .kind = GRAPH_MEMORY, .device = memory->device, .owner = memory};
    memory->allocation = memory_add(&values);
    if (memory->allocation == NULL) {
        gpu_release(memory->device->gpu, more);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    usage_add_reserved(usage, more);
    usage_add_used(usage, whole);
    return CUDA_SUCCESS;
}

struct device *graph_memory_device(const struct graph_memory *memory) {
    return memory->device;
}

bool graph_memory_is_allocated(const struct graph_memory *memory) {
    return memory->allocation != NULL;
}

void graph_memory_free(struct graph_memory *memory) {
    if (memory->allocation == NULL) {
        return;
    }
    graph_usage_of(memory->device)->used -= round_up(memory->bytes, GRAPH_MEMORY_ALIGNMENT);
    memory_remove(memory->allocation);
    memory->allocation = NULL;
    if (memory->graph_deleted) {
        graph_memory_delete(memory);
    }
}

void graph_memory_delete(struct graph_memory *memory) {
    memory->graph_deleted = true;
    if (memory->allocation != NULL) {
        return;
    }
    LIST_REMOVE(memory, list);
    memory_unmap((void *)memory->base, round_up(memory->bytes, GRAPH_MEMORY_ALIGNMENT));
    free(memory);
}

bool graph_memory_trim(const struct device *device) {
    struct memory_usage *usage = graph_usage_of(device);
    if (usage->reserved == usage->used) {
        return false;
    }
    for (struct graph_memory *memory = LIST_FIRST(&graph_memories); memory != NULL; memory = LIST_NEXT(memory, list)) {
        if (memory->device == device && memory->allocation == NULL) {
            (void)madvise((void *)memory->base, round_up(memory->bytes, GRAPH_MEMORY_ALIGNMENT), MADV_DONTNEED);
        }
    }
    gpu_release(device->gpu, usage->reserved - usage->used);
    usage->reserved = usage->used;
    return true;
}

void graph_memory_free_all(const struct device *device) {
    struct graph_memory *next;
    for (struct graph_memory *memory = LIST_FIRST(&graph_memories); memory != NULL; memory = next) {
        next = LIST_NEXT(memory, list);
        if (memory->device == device) {
            graph_memory_free(memory);
        }
    }
    (void)graph_memory_trim(device);
}

static CUresult enter_graph_memory(CUdevice ordinal, const void *value, struct device **device) {
    if (value == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *device = device_from_ordinal(ordinal);
    return *device != NULL ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_DEVICE);
}

API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value) {
    struct device *found;
    CUresult result = enter_graph_memory(device, value, &found);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct memory_usage *usage = graph_usage_of(found);
    switch ((int)attr) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = usage->used;
        break;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = usage->used_high;
        break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = usage->reserved;
        break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = usage->reserved_high;
        break;
    default:
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuDeviceGraphMemTrim(CUdevice device) {
    struct device *found;
    CUresult result = enter_graph_memory(device, &device, &found);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    (void)graph_memory_trim(found);
    return leave(CUDA_SUCCESS);
}
