/*
 * `memory KIND [wait]` fills the container's memory limit with device memory of one kind. It allocates large blocks
 * until an allocation fails, halves the size, and repeats down to the smallest block of that kind. Then it prints the
 * result as one JSON object. When its input ends, it frees everything and prints the bytes that are free then. With
 * `wait` it starts at the first line of input.
 */
#include "driver.h"

#include <string.h>

struct access {
    struct location location;
    int flags;
};
struct array_descriptor {
    size_t width, height;
    int format;
    unsigned channels;
};
enum { READ_WRITE = 3, FORMAT_FLOAT = 0x20, ATTACH_GLOBAL = 1 };

/* One allocation. The kind decides which fields are set. */
struct block {
    CUdeviceptr address;
    size_t bytes;
    unsigned long long handle;
    CUarray array;
    CUgraphExec graph;
};

static CUstream stream;

static int allocate_plain(struct block *block) {
    return CALL(cuMemAlloc_v2, CUdeviceptr *, size_t)(&block->address, block->bytes);
}

static int free_plain(struct block *block) {
    return CALL(cuMemFree_v2, CUdeviceptr)(block->address);
}

static int allocate_managed(struct block *block) {
    return CALL(cuMemAllocManaged, CUdeviceptr *, size_t, unsigned)(&block->address, block->bytes, ATTACH_GLOBAL);
}

/* With rows of 4,096 bytes, pitch times height is the requested size. */
static int allocate_pitched(struct block *block) {
    size_t pitch = 0;
    int result = CALL(cuMemAllocPitch_v2, CUdeviceptr *, size_t *, size_t, size_t,
                      unsigned)(&block->address, &pitch, 4096, block->bytes / 4096, 4);
    if (result == CUDA_SUCCESS) {
        block->bytes = pitch * (block->bytes / 4096);
    }
    return result;
}

static int allocate_async(struct block *block) {
    int result = CALL(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream)(&block->address, block->bytes, stream);
    return result != CUDA_SUCCESS ? result : CALL(cuStreamSynchronize, CUstream)(stream);
}

static int free_async(struct block *block) {
    int result = CALL(cuMemFreeAsync, CUdeviceptr, CUstream)(block->address, stream);
    return result != CUDA_SUCCESS ? result : CALL(cuStreamSynchronize, CUstream)(stream);
}

/* A graph whose only node allocates; the memory lives on after each launch until it is freed. */
static int allocate_captured(struct block *block) {
    CUgraph graph;
    block->graph = NULL;
    MUST(CALL(cuStreamBeginCapture_v2, CUstream, int)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    int allocated = CALL(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream)(&block->address, block->bytes, stream);
    MUST(CALL(cuStreamEndCapture, CUstream, CUgraph *)(stream, &graph));
    int result = allocated != CUDA_SUCCESS ? allocated
                                           : CALL(cuGraphInstantiateWithFlags, CUgraphExec *, CUgraph,
                                                  unsigned long long)(&block->graph, graph, 0);
    if (result == CUDA_SUCCESS &&
        (result = CALL(cuGraphLaunch, CUgraphExec, CUstream)(block->graph, stream)) == CUDA_SUCCESS) {
        result = CALL(cuStreamSynchronize, CUstream)(stream);
    }
    if (result != CUDA_SUCCESS && block->graph != NULL) {
        MUST(CALL(cuGraphExecDestroy, CUgraphExec)(block->graph));
    }
    MUST(CALL(cuGraphDestroy, CUgraph)(graph));
    return result;
}

static int free_captured(struct block *block) {
    int result = free_async(block);
    MUST(CALL(cuGraphExecDestroy, CUgraphExec)(block->graph));
    return result != CUDA_SUCCESS ? result : CALL(cuDeviceGraphMemTrim, int)(0);
}

static int allocate_virtual(struct block *block) {
    const struct allocation_properties properties = driver_device_memory;
    int result = CALL(cuMemCreate, unsigned long long *, size_t, const struct allocation_properties *,
                      unsigned long long)(&block->handle, block->bytes, &properties, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct access access = {.location = properties.location, .flags = READ_WRITE};
    MUST(CALL(cuMemAddressReserve, CUdeviceptr *, size_t, size_t, CUdeviceptr,
              unsigned long long)(&block->address, block->bytes, 0, 0, 0));
    MUST(CALL(cuMemMap, CUdeviceptr, size_t, size_t, unsigned long long,
              unsigned long long)(block->address, block->bytes, 0, block->handle, 0));
    MUST(CALL(cuMemSetAccess, CUdeviceptr, size_t, const struct access *, size_t)(block->address, block->bytes, &access,
                                                                                  1));
    /* As programs usually do: the handle is released here, and the memory stays allocated until it is unmapped. */
    return CALL(cuMemRelease, unsigned long long)(block->handle);
}

static int free_virtual(struct block *block) {
    MUST(CALL(cuMemUnmap, CUdeviceptr, size_t)(block->address, block->bytes));
    return CALL(cuMemAddressFree, CUdeviceptr, size_t)(block->address, block->bytes);
}

/* Rows of 1,024 floats. */
static int allocate_array(struct block *block) {
    struct array_descriptor descriptor = {1024, block->bytes / 4096, FORMAT_FLOAT, 1};
    return CALL(cuArrayCreate_v2, CUarray *, const struct array_descriptor *)(&block->array, &descriptor);
}

static int free_array(struct block *block) {
    return CALL(cuArrayDestroy, CUarray)(block->array);
}

static const struct kind {
    const char *name;
    const char *function; /* the driver supports the kind if it exports this */
    int (*allocate)(struct block *);
    int (*free)(struct block *);
    size_t smallest; /* bytes */
} kinds[] = {
    {"plain", "cuMemAlloc_v2", allocate_plain, free_plain, 1},
    {"managed", "cuMemAllocManaged", allocate_managed, free_plain, 1},
    {"pitched", "cuMemAllocPitch_v2", allocate_pitched, free_plain, 4096},
    {"async", "cuMemAllocAsync", allocate_async, free_async, 1},
    {"captured", "cuDeviceGraphMemTrim", allocate_captured, free_captured, 2 * MIB},
    {"virtual", "cuMemCreate", allocate_virtual, free_virtual, 0},
    {"array", "cuArrayCreate_v2", allocate_array, free_array, 4096},
};
enum { KINDS = sizeof kinds / sizeof kinds[0], MAX_BLOCKS = 1 << 20 };

int main(int count, char **arguments) {
    const struct kind *kind = NULL;
    for (int i = 0; i < KINDS; i++) {
        if (count >= 2 && strcmp(arguments[1], kinds[i].name) == 0) {
            kind = &kinds[i];
        }
    }
    if (kind == NULL) {
        fprintf(stderr, "usage: memory plain|managed|pitched|async|captured|virtual|array [wait]\n");
        return 2;
    }
    driver_start();
    if (driver_find(kind->function) == NULL) {
        printf("{\"missing\": \"%s\"}\n", kind->function);
        return EXIT_SUCCESS;
    }
    MUST(CALL(cuStreamCreate, CUstream *, unsigned)(&stream, 0));
    size_t largest = 256 * MIB;
    if (count > 2) {
        largest = 4 * MIB; /* small, so that each of the processes that start together gets some */
        printf("{}\n");
        fflush(stdout);
        getchar();
    }
    struct block *blocks = calloc(MAX_BLOCKS, sizeof *blocks);
    size_t smallest = kind->smallest != 0 ? kind->smallest : driver_granularity(&driver_device_memory);
    size_t allocated = 0, obtained = 0, before, total, after;
    int error = CUDA_SUCCESS;
    driver_memory(&before, &total);
    for (size_t bytes = largest; bytes >= smallest && blocks != NULL; bytes /= 2) {
        while (allocated < MAX_BLOCKS) {
            struct block *block = &blocks[allocated];
            *block = (struct block){.bytes = bytes};
            if ((error = kind->allocate(block)) != CUDA_SUCCESS) {
                break;
            }
            allocated++;
            obtained += block->bytes;
        }
    }
    printf("{\"total\": %zu, \"free_before\": %zu, \"obtained\": %zu, \"error\": \"%s\"}\n", total, before, obtained,
           driver_error(error));
    driver_wait_for_script();
    for (size_t i = allocated; i-- > 0;) {
        MUST(kind->free(&blocks[i]));
    }
    MUST(CALL(cuCtxSynchronize, void)());
    driver_memory(&after, &total);
    printf("{\"free_after\": %zu}\n", after);
    return EXIT_SUCCESS;
}
